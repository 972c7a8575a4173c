# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that keep some kernel settings in force only while the engine serves: program, its settings, its unit; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .serving import REFUSED

NAME = "gb10-ring-memory-serving.service"
ENGINE = "gb10-ring-engine.service"
PROGRAM_HEADER = "# Managed by gb10.ring (module memory_settings); changes are overwritten.\n"

_UNIT = """\
# Managed by gb10.ring (module memory_settings); changes are overwritten.
[Unit]
Description=Memory settings while the engine serves (gb10.ring)
# Started and stopped with the engine, after it and before it.
BindsTo={engine}
After={engine}

[Service]
Type=exec
ExecStart={python} -B {program} {settings}
ExecStopPost={python} -B {program} {settings} restore
OOMScoreAdjust=-900
NoNewPrivileges=true
ProtectHome=true
ProtectSystem=full
Restart=on-failure
RestartPreventExitStatus={refused}
RestartSec=10

[Install]
WantedBy={engine}
"""


@dataclass(frozen=True)
class ServingPlaces:
    """Paths as the node has them."""

    program: str = "/usr/local/lib/gb10-ring/memory_serving.py"
    settings: str = "/etc/gb10-ring/memory-serving.json"
    unit: str = f"/etc/systemd/system/{NAME}"
    link: str = f"/etc/systemd/system/{ENGINE}.wants/{NAME}"
    engine_record: str = "/etc/gb10-ring/engine.json"
    proc_sys: str = "/proc/sys"
    run: str = "/run/gb10-ring"
    python: str = "/usr/bin/python3"
    interval_s: float = 5.0


def files(values: Mapping[str, str], program: str, places: ServingPlaces) -> dict[str, str]:
    """Texts by path; all empty, which stands for absent, when there is nothing to set. program: text of serving.py."""
    if not values:
        return {places.program: "", places.settings: "", places.unit: ""}
    settings = {
        "_": "Managed by gb10.ring (module memory_settings); changes are overwritten.",
        "values": dict(sorted(values.items())),
        "proc_sys": places.proc_sys,
        "run": places.run,
        "engine_record": places.engine_record,
        "interval_s": places.interval_s,
    }
    unit = _UNIT.format(
        engine=ENGINE, python=places.python, program=places.program, settings=places.settings, refused=REFUSED
    )
    return {
        places.program: PROGRAM_HEADER + program,
        places.settings: json.dumps(settings) + "\n",
        places.unit: unit,
    }
