# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One `unreachable` route in the namespace that calls `up`: a lab address tried from there fails at once and never leaves.

It is the only thing that the lab changes outside its own namespaces. `down` removes it when the last lab of the machine goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .instance import LAB_NETWORK
from .procs import run

PROTOCOL = "198"  # marks the route as the lab's own


def is_ours(route: dict[str, Any]) -> bool:
    kind, protocol = route.get("type"), str(route.get("protocol"))
    return kind == "unreachable" and route.get("dst") == LAB_NETWORK and protocol == PROTOCOL


def foreign(routes: Sequence[dict[str, Any]]) -> list[str]:
    """Routes within the lab's range that somebody else made: they are left as they are."""
    return [f"{route.get('type', 'unicast')} {route['dst']}" for route in routes if not is_ours(route)]


def _routes() -> list[dict[str, Any]]:
    found = run(["ip", "-j", "route", "show", "root", LAB_NETWORK]).stdout
    routes: list[dict[str, Any]] = json.loads(found or "[]")
    return routes


def _labs() -> list[Path]:
    return list(Path("/run/netns").glob("gb10-*-ctl"))


def _in_a_lab() -> bool:
    here = os.stat("/proc/self/ns/net").st_ino
    return any(path.stat().st_ino == here for path in Path("/run/netns").glob("gb10-*"))


def place() -> None:
    """Add the route unless it is there, this is a namespace of a lab, or the range is in real use."""
    if _in_a_lab():
        return
    routes = _routes()
    if foreign(routes):
        said = ", ".join(foreign(routes))
        print(f"lab: no guard route: this machine already routes {said}, which the lab leaves alone", flush=True)
    elif not routes:
        run(["ip", "route", "add", "unreachable", LAB_NETWORK, "proto", PROTOCOL])


def lift() -> None:
    """Remove the route when no lab of any checkout is left."""
    if not _labs() and not _in_a_lab() and any(is_ours(route) for route in _routes()):
        run(["ip", "route", "delete", "unreachable", LAB_NETWORK, "proto", PROTOCOL])
