# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory guard's files on a node, and the plan that takes a node to them or away from them; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..plan import Change, Plan
from .guard import Limits

UNIT = "gb10-ring-guard.service"
# A slice of the root: memory.min only holds where every ancestor has it, and system.slice has none.
SLICE = "gb10guard.slice"
PACKAGE = "memory_guard"
PROGRAM = ("guard.py", "guard_machine.py", "guard_notice.py", "guard_service.py")
PROTECTED_MIB = 32  # a few times what the guard takes

_A_TOKEN, _OTHER_TOKEN, _SHOWN_NOT = "a token of the group\n", "another token\n", "shown nowhere"

_SLICE_TEXT = """\
# Managed by gb10.ring (module memory_guard): changes here are overwritten.
[Unit]
Description=Memory that stays with the memory guard of gb10.ring
Before=slices.target

[Slice]
MemoryMin={protected}M
"""

_UNIT_TEXT = """\
# Managed by gb10.ring (module memory_guard): changes here are overwritten.
[Unit]
Description=Stops the inference engine before it takes the node's last memory (gb10.ring)
# Armed, with a first look taken, before the engine starts.
Before={engine}
StartLimitIntervalSec=0

[Service]
Type=notify
WorkingDirectory={directory}
# Small is safe: one arena for all threads, and Python's own SHA-256 in place of OpenSSL, whose library would take 5 MiB.
Environment=MALLOC_ARENA_MAX=1
ExecStart={python} -EsSB -c "import sys; sys.modules['_hashlib'] = None; from {package} import guard_service; guard_service.main()" {settings}
Restart=always
RestartSec=1
WatchdogSec=30
TimeoutStartSec=20
TimeoutStopSec=5
# The kernel takes anything before the guard, and leaves it its pages and its turn.
OOMScoreAdjust=-1000
Slice={slice}
MemoryMin={protected}M
Nice=-10
RuntimeDirectory={runtime}
# Root may write drop_caches and ask systemd to stop a unit without any capability; this one is to lock its own pages.
CapabilityBoundingSet=CAP_IPC_LOCK
NoNewPrivileges=true
ProtectSystem=strict
ReadWritePaths=-{state}
ProtectHome=true
RestrictAddressFamilies=AF_UNIX AF_INET
LockPersonality=true
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target {engine}
"""


@dataclass(frozen=True)
class Places:
    """Where the guard's files are. Other than the defaults they are meant for tests."""

    etc: str = "/etc"
    lib: str = "/usr/local/lib"
    state: str = "/var/lib/gb10-ring"
    run: str = "/run"

    @property
    def settings(self) -> str:
        return f"{self.etc}/gb10-ring/memory-guard.json"

    @property
    def token(self) -> str:
        return f"{self.etc}/gb10-ring/memory-guard.token"

    @property
    def directory(self) -> str:
        return f"{self.lib}/gb10-ring"

    @property
    def last(self) -> str:
        return f"{self.state}/memory-guard-last.json"

    @property
    def status(self) -> str:
        return f"{self.run}/gb10-ring-guard/status.json"

    def unit(self, name: str) -> str:
        return f"{self.etc}/systemd/system/{name}"


@dataclass(frozen=True)
class Wanted:
    """What the guard is to do. peers: address of each neighbour by name. token: None leaves the node's as it is."""

    node: str
    engine: str
    limits: Limits
    address: str
    port: int
    peers: Mapping[str, str]
    meminfo: str
    token: str | None = None


@dataclass(frozen=True)
class Found:
    """The node as it is. files: text by path, None when absent. digest: of what the running guard was started from."""

    files: Mapping[str, str | None]
    active: bool = False
    enabled: bool = False
    digest: str = ""
    token: str = ""


@dataclass(frozen=True)
class GuardPlan:
    """files: path to (text, mode), text None to remove. what else is to be done, and the plan that shows all of it."""

    files: Mapping[str, tuple[str | None, int]] = field(default_factory=dict)
    enable: bool = False
    restart: bool = False
    disable: bool = False
    plan: Plan = field(default_factory=Plan)


def unit_text(wanted: Wanted, places: Places, python: str) -> str:
    return _UNIT_TEXT.format(
        engine=wanted.engine,
        directory=places.directory,
        package=PACKAGE,
        python=python,
        settings=places.settings,
        slice=SLICE,
        protected=PROTECTED_MIB,
        runtime=places.status.split("/")[-2],
        state=places.state,
    )


def settings_text(wanted: Wanted, places: Places, digest: str) -> str:
    settings = {
        "node": wanted.node,
        "unit": wanted.engine,
        "address": wanted.address,
        "port": wanted.port,
        "peers": dict(wanted.peers),
        "limits": wanted.limits._asdict(),
        "paths": {
            "meminfo": wanted.meminfo,
            "drop_caches": "/proc/sys/vm/drop_caches",
            "cgroup_kill": f"/sys/fs/cgroup/system.slice/{wanted.engine}/cgroup.kill",
            "units": f"{places.run}/systemd/units",
            "token": places.token,
            "engine": f"{places.etc}/gb10-ring/engine.json",
            "status": places.status,
            "last": places.last,
        },
        "digest": digest,
    }
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"


def digest_of(settings: str) -> str:
    """The digest in the settings' text, empty when there is none."""
    try:
        found = json.loads(settings)
    except ValueError:
        return ""
    return str(found.get("digest", "")) if isinstance(found, dict) else ""


def files(wanted: Wanted, places: Places, program: Mapping[str, str], python: str) -> dict[str, str]:
    """Text of every file but the token, by path. program: text of each of PROGRAM."""
    texts = {
        **{f"{places.directory}/{PACKAGE}/{name}": text for name, text in program.items()},
        places.unit(SLICE): _SLICE_TEXT.format(protected=PROTECTED_MIB),
        places.unit(UNIT): unit_text(wanted, places, python),
    }
    mark = hashlib.sha256("".join([settings_text(wanted, places, ""), *texts.values()]).encode()).hexdigest()[:16]
    return {**texts, places.settings: settings_text(wanted, places, mark)}


def owned(places: Places) -> list[str]:
    """Everything that uninstalling removes."""
    program = [f"{places.directory}/{PACKAGE}/{name}" for name in PROGRAM]
    return [*program, places.unit(SLICE), places.unit(UNIT), places.settings, places.token, places.last]


def decide(found: Found, texts: Mapping[str, str], wanted: Wanted, places: Places) -> GuardPlan:
    """What it takes to have the guard of these files armed."""
    writes: dict[str, tuple[str | None, int]] = {}
    changes = []
    for path, text in texts.items():
        before = found.files.get(path)
        if before != text:
            writes[path] = (text, 0o644)
            changes.append(Change(path, before or "", text, "the memory guard"))
    if wanted.token is not None and wanted.token != found.token:
        writes[places.token] = (wanted.token + "\n", 0o600)
        before = _A_TOKEN if found.token else ""
        changes.append(Change(places.token, before, _OTHER_TOKEN if found.token else _A_TOKEN, _SHOWN_NOT))
    digest = digest_of(texts[places.settings])
    restart = not found.active or found.digest != digest
    if not found.enabled:
        changes.append(Change(f"{UNIT} at boot", "disabled", "enabled", "armed before the engine starts"))
    if restart:
        before = f"active, {found.digest or 'of other files'}" if found.active else "inactive"
        changes.append(Change(UNIT, before, f"active, {digest}", "armed"))
    return GuardPlan(writes, enable=not found.enabled, restart=restart, plan=Plan(tuple(changes)))


def decide_absent(found: Found, places: Places) -> GuardPlan:
    """What it takes to have no guard."""
    there = [path for path in owned(places) if found.files.get(path) is not None]
    changes = [
        Change(path, _A_TOKEN if path == places.token else found.files[path] or "", "", "removed") for path in there
    ]
    running = found.active or found.enabled
    if running:
        changes.insert(0, Change(UNIT, "active" if found.active else "enabled", "", "stopped and disabled"))
    return GuardPlan({path: (None, 0) for path in there}, disable=running, plan=Plan(tuple(changes)))
