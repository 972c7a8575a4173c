# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The group supervisor's files on a node; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..own_service import Service, settings_text

UNIT = "gb10-ring-group.service"
PACKAGE = "engine_group"
PROGRAM = (
    *(f"engine/{name}.py" for name in ("group", "group_channel", "group_command", "group_incident", "group_intent")),
    *(f"engine/{name}.py" for name in ("group_machine", "group_order", "group_service")),
    *(f"memory/{name}.py" for name in ("guard_machine", "guard_notice")),
)
TOKEN_LENGTH = 32

_UNIT_TEXT = """\
# Managed by gb10.ring (module engine_group): changes here are overwritten.
[Unit]
Description=Ties the ranks of the inference engine together (gb10.ring)
# Up before the engine, and down after it: its last word to the other nodes is that the engine has ended.
Before={engine}
After=network.target
StartLimitIntervalSec=0

[Service]
Type=notify
WorkingDirectory={directory}
Environment=MALLOC_ARENA_MAX=1
ExecStart={python} -EsSB -c "from {package}.engine import group_service; group_service.main()" {settings}
Restart=always
RestartSec=1
WatchdogSec=60
TimeoutStartSec=30
TimeoutStopSec=10
OOMScoreAdjust=-900
RuntimeDirectory={runtime}
RuntimeDirectoryMode=0700
# What was meant and what is known outlive a restart of the supervisor.
RuntimeDirectoryPreserve=yes
StateDirectory=gb10-ring/incidents
StateDirectoryMode=0700
# Root may ask systemd to stop a unit, and read the journal, without any capability.
CapabilityBoundingSet=
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
RestrictAddressFamilies=AF_UNIX AF_INET
LockPersonality=true
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target {engine}
"""

_COMMAND_TEXT = """\
#!{python} -EsSB
# Managed by gb10.ring (module engine_group): changes here are overwritten.
import sys

sys.path.insert(0, "{directory}")
from {package}.engine import group_command

sys.exit(group_command.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Places:
    """Where the supervisor's files are. Other than the defaults they are meant for tests."""

    etc: str = "/etc"
    usr: str = "/usr/local"
    state: str = "/var/lib/gb10-ring"
    run: str = "/run"

    @property
    def settings(self) -> str:
        return f"{self.etc}/gb10-ring/group.json"

    @property
    def directory(self) -> str:
        return f"{self.usr}/lib/gb10-ring"

    @property
    def command(self) -> str:
        return f"{self.usr}/sbin/gb10-ring-group"

    def service(self) -> Service:
        package = f"{self.directory}/{PACKAGE}"
        unit, token = f"{self.etc}/systemd/system/{UNIT}", f"{self.etc}/gb10-ring/group.token"
        return Service(
            unit=UNIT,
            unit_path=unit,
            settings=self.settings,
            status=f"{self.run}/gb10-ring-group/status.json",
            what="the group's supervisor",
            owned=(*(f"{package}/{name}" for name in PROGRAM), self.command, unit, self.settings, token),
            folders=(f"{package}/engine", f"{package}/memory", package, self.directory, f"{self.etc}/gb10-ring"),
            token=token,
        )


@dataclass(frozen=True)
class Wanted:
    """What the supervisor is to do. ranks: of every node, by name; addresses: on the management plane, by name."""

    node: str
    engine: str
    ranks: Mapping[str, int]
    addresses: Mapping[str, str]
    port: int
    silence_s: int
    stop_s: int


def problems(wanted: Wanted, token: str | None) -> list[str]:
    """What is wrong with it."""
    found = []
    for name, address in wanted.addresses.items():
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            found.append(f"addresses gives {address!r} for {name}, expected an IPv4 address")
    if set(wanted.ranks) != set(wanted.addresses) or wanted.node not in wanted.ranks:
        found.append(f"ranks and addresses name {_names(wanted)}, expected the nodes of the group, {wanted.node} too")
    if sorted(wanted.ranks.values()) != list(range(len(wanted.ranks))):
        found.append(f"ranks are {sorted(wanted.ranks.values())}, expected 0 to {len(wanted.ranks) - 1}")
    if len(set(wanted.addresses.values())) != len(wanted.addresses):
        found.append("addresses gives two nodes the same address")
    for name, value, low, high in (
        ("port", wanted.port, 1, 65535),
        ("silence_s", wanted.silence_s, 5, 3600),
        ("stop_s", wanted.stop_s, 1, 600),
    ):
        if not low <= value <= high:
            found.append(f"{name} is {value}, expected {low} to {high}")
    if token is not None and (len(token) < TOKEN_LENGTH or not token.isascii() or len(token.split()) != 1):
        found.append(f"token is not of {TOKEN_LENGTH} or more ASCII characters without spaces")
    return found


def _names(wanted: Wanted) -> str:
    return f"{', '.join(sorted(wanted.ranks)) or 'nobody'} and {', '.join(sorted(wanted.addresses)) or 'nobody'}"


def settings(wanted: Wanted, places: Places) -> dict[str, Any]:
    service = places.service()
    return {
        "node": wanted.node,
        "rank": wanted.ranks[wanted.node],
        "unit": wanted.engine,
        "address": wanted.addresses[wanted.node],
        "port": wanted.port,
        "peers": {
            name: {"rank": wanted.ranks[name], "address": address}
            for name, address in wanted.addresses.items()
            if name != wanted.node
        },
        "silence_s": wanted.silence_s,
        "stop_s": wanted.stop_s,
        "paths": {
            "run": places.run,
            "units": f"{places.run}/systemd/units",
            "token": service.token,
            "engine": f"{places.etc}/gb10-ring/engine.json",
            "cgroup_kill": f"/sys/fs/cgroup/system.slice/{wanted.engine}/cgroup.kill",
            "guard": f"{places.run}/gb10-ring-guard/status.json",
            "incidents": f"{places.state}/incidents",
        },
    }


def files(wanted: Wanted, places: Places, program: Mapping[str, str], python: str) -> dict[str, str]:
    """Text of every file but the token, by path. program: text of each of PROGRAM."""
    service = places.service()
    filled = {"python": python, "directory": places.directory, "package": PACKAGE}
    texts = {
        **{f"{places.directory}/{PACKAGE}/{name}": text for name, text in program.items()},
        places.command: _COMMAND_TEXT.format(**filled),
        service.unit_path: _UNIT_TEXT.format(
            **filled, engine=wanted.engine, settings=places.settings, runtime="gb10-ring-group"
        ),
    }
    return {**texts, places.settings: settings_text(settings(wanted, places), list(texts.values()))}
