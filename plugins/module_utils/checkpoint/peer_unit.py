# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transient systemd unit of a node's peer server: started, stopped, gone by itself when nobody stops it.

A web server of its own, because nodes have none (DGX OS brings no nginx, and nodes are not to need a package source), and
because it has to know which files are finished. It runs from a copy of the few modules it needs, in a directory below /run
that systemd removes together with the unit.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..host import HostError, run, write_text
from . import peer_server
from .fanout import shareable
from .manifest import ManifestError, parse
from .options import range_problems

UNIT = "gb10-ring-fanout.service"
DIRECTORY = Path("/run/gb10-ring-fanout")
SETTINGS = "settings.json"
_PACKAGE = peer_server.__name__.rpartition(".checkpoint.")[0]


def argv(python: str, directory: Path, max_s: int) -> list[str]:
    """The command that starts the unit and returns when the server listens. The token is not in it."""
    properties = {
        "Type": "notify",
        "RuntimeMaxSec": str(max_s),
        "TimeoutStartSec": "20",
        "TimeoutStopSec": "5",
        "RuntimeDirectory": directory.name,
        "RuntimeDirectoryMode": "0700",
        "WorkingDirectory": str(directory),
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
        # To bind to a netdev, and to read checkpoints that belong to somebody else.
        "CapabilityBoundingSet": "CAP_NET_RAW CAP_DAC_READ_SEARCH",
        "OOMScoreAdjust": "500",
    }
    options = [f"--property={name}={value}" for name, value in properties.items()]
    program = [python, "-B", "-m", peer_server.__name__, str(directory / SETTINGS)]
    return ["systemd-run", f"--unit={UNIT}", "--collect", "--quiet", *options, "--", *program]


def sources(loaded: Mapping[str, ModuleType]) -> dict[str, str]:
    """Text of every module of this collection that is loaded, by the path that Python imports it from."""
    found = {}
    for name, module in loaded.items():
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        if name.startswith(f"{_PACKAGE}.") and not hasattr(module, "__path__") and loader is not None:
            found[f"{name.replace('.', '/')}.py"] = loader.get_source(name)
    return found


def start(settings: Mapping[str, Any], max_s: int, directory: Path = DIRECTORY) -> None:
    """Start the server; one that runs is replaced. Raises HostError, and leaves nothing behind then."""
    stop(directory)
    try:
        directory.mkdir(mode=0o700)
        for path, text in sources(dict(sys.modules)).items():
            write_text(directory / path, text)
        write_text(directory / SETTINGS, json.dumps(settings), 0o600)
        run(argv(sys.executable, directory, max_s))
    except (HostError, OSError) as error:
        said = _last_words()
        stop(directory)
        raise HostError(f"cannot start the server for other nodes ({UNIT}): {error}{said}") from error


def _last_words(lines: int = 3) -> str:
    with contextlib.suppress(HostError):
        said = run(["journalctl", "-u", UNIT, "-n", str(lines), "-o", "cat", "--no-pager"]).stdout.strip()
        return f"; it said: {said.splitlines()[-1]}" if said else ""
    return ""


def running() -> bool:
    return run(["systemctl", "is-active", "--quiet", UNIT], check=False).rc == 0


def present(directory: Path = DIRECTORY) -> bool:
    """Whether there is anything to stop or to remove."""
    return running() or directory.exists()


def stop(directory: Path = DIRECTORY) -> bool:
    """Stop the server and remove what it ran from; whether there was anything. Raises HostError."""
    there = present(directory)
    if running():
        run(["systemctl", "stop", UNIT])
    shutil.rmtree(directory, ignore_errors=True)
    return there


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
