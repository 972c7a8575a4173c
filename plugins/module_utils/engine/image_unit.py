# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient systemd unit that gives a node's image to its neighbours while it is distributed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..transient import Program
from . import image_server
from .image_machine import name_in_address, save_command

UNIT = "gb10-ring-image.service"
DIRECTORY = Path("/run/gb10-ring-image")
# Docker's daemon does the work, its client only talks to it. Podman works in its own process, on storage that it mounts.
_CONFINED = {"CapabilityBoundingSet": "CAP_NET_RAW CAP_DAC_OVERRIDE", "ProtectSystem": "strict", "ProtectHome": "yes"}


def program(runtime: str) -> Program:
    """The server as a unit."""
    rights = _CONFINED if runtime == "docker" else {}
    return Program(UNIT, image_server.__name__, DIRECTORY, rights)


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the server is told, from the options of the module."""
    return {
        "name": name_in_address(options["image_id"]),
        "command": save_command(options["runtime"], options["image_id"]),
        "listen": [{"address": str(row["address"]), "netdev": str(row["netdev"])} for row in options["listen"]],
        "port": options["port"],
        "token": options["token"],
        "idle_s": options["idle_s"],
    }
