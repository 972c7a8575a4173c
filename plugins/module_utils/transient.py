# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of this collection as a transient systemd unit: started, stopped, gone by itself when nobody stops it.

It runs from a copy of the few modules it needs, in a directory below /run that systemd removes together with the unit.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from .host import HostError, run, write_text

SETTINGS = "settings.json"
_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True)
class Program:
    """unit: its name. module: what runs, with the path of its settings as argument. properties: of the unit, beside those all have."""

    unit: str
    module: str
    directory: Path
    properties: Mapping[str, str] = field(default_factory=dict)

    def argv(self, python: str, max_s: int) -> list[str]:
        """The command that starts the unit and returns when the program says that it is ready. No secret is in it."""
        properties = {
            "Type": "notify",
            "RuntimeMaxSec": str(max_s),
            "TimeoutStartSec": "20",
            "TimeoutStopSec": "5",
            "RuntimeDirectory": self.directory.name,
            "RuntimeDirectoryMode": "0700",
            "WorkingDirectory": str(self.directory),
            "NoNewPrivileges": "yes",
            "OOMScoreAdjust": "500",
            **self.properties,
        }
        options = [f"--property={name}={value}" for name, value in properties.items()]
        program = [python, "-B", "-m", self.module, str(self.directory / SETTINGS)]
        return ["systemd-run", f"--unit={self.unit}", "--collect", "--quiet", *options, "--", *program]

    def start(self, settings: Mapping[str, Any], max_s: int) -> None:
        """Start it; one that runs is replaced. Raises HostError, and leaves nothing behind then."""
        self.stop()
        try:
            self.directory.mkdir(mode=0o700)
            for path, text in sources(dict(sys.modules)).items():
                write_text(self.directory / path, text)
            write_text(self.directory / SETTINGS, json.dumps(settings), 0o600)
            run(self.argv(sys.executable, max_s))
        except (HostError, OSError) as error:
            said = self._last_words()
            self.stop()
            raise HostError(f"cannot start the server for other nodes ({self.unit}): {error}{said}") from error

    def _last_words(self, lines: int = 3) -> str:
        with contextlib.suppress(HostError):
            said = run(["journalctl", "-u", self.unit, "-n", str(lines), "-o", "cat", "--no-pager"]).stdout.strip()
            return f"; it said: {said.splitlines()[-1]}" if said else ""
        return ""

    def running(self) -> bool:
        return run(["systemctl", "is-active", "--quiet", self.unit], check=False).rc == 0

    def present(self) -> bool:
        """Whether there is anything to stop or to remove."""
        return self.running() or self.directory.exists()

    def stop(self) -> bool:
        """Stop it and remove what it ran from; whether there was anything. Raises HostError."""
        there = self.present()
        if self.running():
            run(["systemctl", "stop", self.unit])
        shutil.rmtree(self.directory, ignore_errors=True)
        return there


def sources(loaded: Mapping[str, ModuleType]) -> dict[str, str]:
    """Text of every module of this collection that is loaded, by the path that Python imports it from."""
    found = {}
    for name, module in loaded.items():
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if name.startswith(f"{_PACKAGE}.") and not hasattr(module, "__path__") and loader is not None:
            found[f"{name.replace('.', '/')}.py"] = loader.get_source(name)
    return found
