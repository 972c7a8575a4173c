# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient systemd unit of a node's peer server.

A web server of its own, because nodes have none (DGX OS brings no nginx, and nodes are not to need a package source), and
because it has to know which files are finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..transient import Program
from . import peer_server
from .fanout import shareable
from .manifest import ManifestError, parse
from .options import range_problems

UNIT = "gb10-ring-fanout.service"
DIRECTORY = Path("/run/gb10-ring-fanout")


def program(directory: Path = DIRECTORY) -> Program:
    """The server as a unit."""
    # To bind to a netdev, and to read checkpoints that belong to somebody else.
    rights = {"CapabilityBoundingSet": "CAP_NET_RAW CAP_DAC_READ_SEARCH", "ProtectSystem": "strict"}
    return Program(UNIT, peer_server.__name__, directory, rights)


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the server is told, from the options of the module. Raises ManifestError."""
    problems = [*range_problems(dict(options)), *listen_problems(options["listen"])]
    if problems:
        raise ManifestError("; ".join(problems))
    plan = parse(options["plan"])
    return {
        "root": options["root"],
        "name": plan.name,
        "revision": plan.revision,
        "digests": {file.path: file.digest for file in plan.files if shareable(file)},
        "listen": [{"address": str(row["address"]), "netdev": str(row["netdev"])} for row in options["listen"]],
        "port": options["port"],
        "token": options["token"],
        "idle_s": options["idle_s"],
    }


def listen_problems(listen: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the addresses to listen on, one text each."""
    return [
        f"option listen holds {dict(row)}, expected a dictionary with address and netdev"
        for row in listen
        if not (row.get("address") and row.get("netdev"))
    ]
