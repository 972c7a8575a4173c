# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog's files on the head; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..own_service import Service, settings_text
from .watch import Limits

UNIT = "gb10-ring-watch.service"
PACKAGE = "engine_watch"
PROGRAM = (
    "engine/diagnosis.py",
    "engine/diagnosis_signs.py",
    "engine/diagnosis_table.py",
    "engine/group_incident.py",
    "engine/group_intent.py",
    "engine/thinking.py",
    "engine/watch.py",
    "engine/watch_group.py",
    "engine/watch_probe.py",
    "engine/watch_service.py",
    "memory/guard_machine.py",
)

_UNIT_TEXT = """\
# Managed by gb10.ring (module engine_watch): changes here are overwritten.
[Unit]
Description=Relaunches the inference group when it hangs or a rank dies (gb10.ring)
Wants=gb10-ring-group.service
After=gb10-ring-group.service
StartLimitIntervalSec=0

[Service]
Type=notify
WorkingDirectory={directory}
ExecStart={python} -EsSB -c "from {package}.engine import watch_service; watch_service.main()" {settings}
Restart=always
RestartSec=2
WatchdogSec={alive_s}
TimeoutStartSec=20
TimeoutStopSec=5
RuntimeDirectory={runtime}
RuntimeDirectoryMode=0700
# What it counts outlives itself, not the machine's run.
RuntimeDirectoryPreserve=yes
# It asks the API, reads the supervisor's files and writes orders for it; it stops and starts nothing by itself.
CapabilityBoundingSet=
NoNewPrivileges=true
ProtectSystem=strict
ReadWritePaths=/run
StateDirectory=gb10-ring/incidents
StateDirectoryMode=0700
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
MemoryDenyWriteExecute=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
LockPersonality=true
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Places:
    """Where the watchdog's files are. Other than the defaults they are meant for tests."""

    etc: str = "/etc"
    lib: str = "/usr/local/lib"
    state: str = "/var/lib/gb10-ring"
    run: str = "/run"

    @property
    def directory(self) -> str:
        return f"{self.lib}/gb10-ring"

    @property
    def settings(self) -> str:
        return f"{self.etc}/gb10-ring/watch.json"

    @property
    def status(self) -> str:
        return f"{self.run}/gb10-ring-watch/status.json"

    @property
    def hold(self) -> str:
        """While this file is there the watchdog does nothing."""
        return f"{self.etc}/gb10-ring/watch-hold"

    @property
    def unit(self) -> str:
        return f"{self.etc}/systemd/system/{UNIT}"

    def program(self, name: str) -> str:
        return f"{self.directory}/{PACKAGE}/{name}"


def service(places: Places) -> Service:
    package = f"{places.directory}/{PACKAGE}"
    return Service(
        unit=UNIT,
        unit_path=places.unit,
        settings=places.settings,
        status=places.status,
        what="the watchdog of the group",
        owned=(*(places.program(name) for name in PROGRAM), places.unit, places.settings, places.hold),
        folders=(f"{package}/engine", f"{package}/memory", package, places.directory, f"{places.etc}/gb10-ring"),
    )


def files(limits: Limits, places: Places, program: Mapping[str, str], python: str) -> dict[str, str]:
    """Text of every file, by path. program: text of each of PROGRAM by its name there."""
    one_look = limits.interval_s + limits.probe_timeout_s + 2 * limits.health_timeout_s
    unit = _UNIT_TEXT.format(
        directory=places.directory,
        python=python,
        package=PACKAGE,
        settings=places.settings,
        alive_s=round(2 * one_look + 30),
        runtime=places.status.split("/")[-2],
    )
    texts = {**{places.program(name): text for name, text in program.items()}, places.unit: unit}
    settings = {
        "limits": limits._asdict(),
        "paths": {
            "run": places.run,
            "engine": f"{places.etc}/gb10-ring/engine.json",
            "running": f"{places.run}/gb10-ring-engine/hash",
            "incidents": f"{places.state}/incidents",
            "status": places.status,
            "hold": places.hold,
        },
    }
    return {**texts, places.settings: settings_text(settings, list(texts.values()))}
