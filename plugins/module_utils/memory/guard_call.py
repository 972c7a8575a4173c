# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of the module memory_guard: from its options to a plan, to its result."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import guard_checks, guard_install, guard_notice, guard_unit
from .guard_profiles import limits
from .guard_unit import Found, GuardPlan, Places, Wanted

TOKEN_LENGTH = 32


def wanted(options: Mapping[str, Any]) -> Wanted:
    """Raises ValueError with everything that is wrong."""
    problems = []
    node, addresses = options["node"], {str(name): str(value) for name, value in options["addresses"].items()}
    for name, address in addresses.items():
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            problems.append(f"addresses gives {address!r} for {name}, expected an IPv4 address")
    if node not in addresses:
        problems.append(f"addresses has no entry for {node}, expected one for each node of the group")
    if len(set(addresses.values())) != len(addresses):
        problems.append("addresses gives two nodes the same address")
    if not 1 <= options["port"] <= 65535:
        problems.append(f"port is {options['port']}, expected 1 to 65535")
    token = options["token"]
    if token is not None and (len(token) < TOKEN_LENGTH or not token.isascii() or len(token.split()) != 1):
        problems.append(f"token is not of {TOKEN_LENGTH} or more ASCII characters without spaces")
    try:
        found = limits(options["profile"], options["limits"])
    except ValueError as error:
        raise ValueError("; ".join([*problems, f"limits: {error}"])) from error
    if problems:
        raise ValueError("; ".join(problems))
    return Wanted(
        node=node,
        engine=options["engine_unit"],
        limits=found,
        address=addresses[node],
        port=options["port"],
        peers={name: address for name, address in addresses.items() if name != node},
        meminfo=options["meminfo_path"],
        token=token,
    )


def prepare(options: Mapping[str, Any]) -> Call:
    """Look and plan. Raises ValueError for options, HostError for the machine."""
    places = Places(options["etc_root"], options["lib_root"], options["state_root"], options["run_root"])
    if options["state"] == "absent":
        found = guard_install.look(places)
        return Call(places, None, "", found, guard_unit.decide_absent(found, places), 0)
    guarded = wanted(options)
    texts = guard_unit.files(guarded, places, guard_install.program(), sys.executable)
    found = guard_install.look(places)
    digest = guard_unit.digest_of(texts[places.settings])
    return Call(
        places, guarded, digest, found, guard_unit.decide(found, texts, guarded, places), float(options["wait_s"])
    )


@dataclass
class Call:
    """wanted: None to have no guard. found: the node as it is now."""

    places: Places
    wanted: Wanted | None
    digest: str
    found: Found
    planned: GuardPlan
    wait: float

    def apply(self) -> None:
        """Raises HostError."""
        guard_install.apply(self.planned, self.places)
        if self.planned.plan.changed:
            self.found = guard_install.look(self.places)

    def result(self, clock: Callable[[], float]) -> dict[str, Any]:
        """What the module returns."""
        plan = self.planned.plan
        shown = {
            "changed": plan.changed,
            "diff": plan.diff(),
            "checks": [],
            "token_print": guard_notice.token_print(self.found.token),
        }
        if self.wanted is None:
            return shown
        peers = list(self.wanted.peers)
        seen = guard_install.settled(self.places, peers, self.wait if self.found.active else 0.0)
        checks = guard_checks.checks(
            self.wanted.node,
            self.found,
            self.digest,
            status=seen,
            last=guard_install.last(self.places),
            peers=peers,
            now=clock(),
        )
        return {**shown, "checks": [check.to_dict() for check in checks], "limits": self.wanted.limits._asdict()}
