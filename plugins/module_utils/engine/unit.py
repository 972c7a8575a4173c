# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of systemd units: quoting by systemd's rules (systemd.syntax, systemd.service), and what the units of all renderers share."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .spec import NAME as STEM
from .spec import EngineSpec

NAME = f"{STEM}.service"
RUN = f"/run/{STEM}"
GID_FILE = f"{RUN}/gid.env"
HASH_FILE = f"{RUN}/hash"
RECORD = "/etc/gb10-ring/engine.json"
GID_PROGRAM = "/etc/gb10-ring/engine-gid.py"
ROWS_PROGRAM = "/etc/gb10-ring/engine-rows.py"
GID_WAIT_S = (
    60  # of a start that the role or an order began: the links are long there, and somebody waits for the report
)
_START_MARGIN_S = 60  # for the other commands before the engine
HASH_VARIABLE = "GB10_RING_ENGINE_HASH"
MANAGED = "# Managed by gb10.ring (module engine_unit): changes here are overwritten."
_CACHE_ROOT = "/var/cache/"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./${}\[\]-]+\Z")


def quote(word: str, expand_dollar: bool = True) -> str:
    """One word as systemd reads it back unchanged. expand_dollar: the place expands $VAR, as ExecStart does."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    if expand_dollar:
        text = text.replace("$", "$$")
    # A lone ; would separate commands; whitespace, quotes and backslashes only keep their meaning between double quotes.
    return text if _PLAIN.match(text) else f'"{text}"'


def command_line(argv: Sequence[str]) -> str:
    return " ".join(quote(word) for word in argv)


def command_lines(rows: Sequence[Sequence[str]]) -> str:
    """A long command, a row a line; systemd joins lines that end in a backslash."""
    return " \\\n  ".join(command_line(row) for row in rows)


def assignment(name: str, value: str) -> str:
    """One Environment= line."""
    return f"Environment={quote(f'{name}={value}', expand_dollar=False)}"


def digest(text: str) -> str:
    """Identity of a configuration: 16 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_of(record: str | None) -> str:
    """The configuration hash that a record (engine.json) carries, or an empty text."""
    return str(_recorded(record).get("hash", ""))


def ready_line_of(record: str | None) -> str:
    """What a record says that the head's log has once it serves; empty for nothing."""
    held = _recorded(record).get("readiness")
    return str(held.get("line") or "") if isinstance(held, dict) else ""


def thinking_of(record: str | None) -> Mapping[str, Any]:
    """What a record says of how the model is told to think; empty when it says nothing."""
    held = _recorded(record).get("thinking")
    return held if isinstance(held, dict) else {}


def _recorded(record: str | None) -> Mapping[str, Any]:
    try:
        held = json.loads(record or "{}")
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


def hash_in_environ(environ: bytes) -> str:
    """The configuration hash that a process was started with, from its /proc/PID/environ."""
    prefix = f"{HASH_VARIABLE}=".encode()
    return next(
        (part[len(prefix) :].decode("ascii", "replace") for part in environ.split(b"\0") if part.startswith(prefix)), ""
    )


def description(spec: EngineSpec) -> str:
    return f"Inference engine {spec.profile}, rank {spec.rank} of {spec.size} (gb10.ring)".replace("%", "%%")


def start_of_unit(spec: EngineSpec, after: Sequence[str] = ()) -> list[str]:
    """The [Unit] section. after: further units that have to be up first."""
    needed = " ".join(("network-online.target", *after))
    return [
        MANAGED,
        "[Unit]",
        f"Description={description(spec)}",
        f"After={needed}",
        f"Wants={needed}",
        *(
            f"RequiresMountsFor={quote(spec.model[place], expand_dollar=False)}"
            for place in ("root", "engram")
            if place in spec.model
        ),
        "# However often the group is started: nothing starts it but people, the supervisor's orders and a boot.",
        "StartLimitIntervalSec=0",
        "",
    ]


def gid_probe(spec: EngineSpec) -> str:
    """The command that finds the GIDs of this start and notes the configuration's hash."""
    variables = [word for name in spec.gid_variables for word in ("--variable", name)]
    devices = [f"{device}={address}" for device, address in spec.gid_devices.items()]
    waits = ["--wait", str(GID_WAIT_S), "--boot-wait", str(boot_wait_s(spec))]
    return command_line(["/usr/bin/python3", "-I", GID_PROGRAM, *waits, *variables, "--", RUN, *devices])


def rows_probe() -> str:
    """The command that keeps the rank from reading Engram rows of another revision or rank.

    With +, since a unit that is confined may not see the checkpoint that the container's own program does.
    """
    return "+" + command_line(["/usr/bin/python3", "-I", ROWS_PROGRAM, RECORD])


def boot_wait_s(spec: EngineSpec) -> int:
    """Seconds that a rank begun by a boot waits for its links: they have a carrier once the nodes at their other ends are up."""
    return max(GID_WAIT_S, spec.readiness.timeout_s)


def policy(spec: EngineSpec, stop_timeout_s: int) -> list[str]:
    """How systemd starts the rank again and what it may use, the same for all renderers."""
    return [
        f"RuntimeDirectory={STEM}",
        f"ExecStartPre={rows_probe()}",
        f"ExecStartPre={gid_probe(spec)}",
        "# A rank alone never comes back: it would meet a stale rendezvous. gb10-ring-group.service ends the group, and starts it whole.",
        "Restart=no",
        f"TimeoutStartSec={boot_wait_s(spec) + _START_MARGIN_S}",
        f"TimeoutStopSec={stop_timeout_s}",
        "# NCCL says more at a start than the 10,000 lines in 30 s that journald keeps; readiness and the proofs of the settings are in them.",
        "LogRateLimitIntervalSec=0",
        f"LimitMEMLOCK={spec.limits.memlock}",
        f"LimitNOFILE={spec.limits.nofile}",
        *([f"LimitSTACK={spec.limits.stack}"] if spec.limits.stack else []),
        "# When memory runs out the kernel takes the engine, not sshd.",
        f"OOMScoreAdjust={spec.limits.oom_score_adjust}",
    ]


def cache_directory(spec: EngineSpec, prefix: str = "") -> list[str]:
    """Compiled kernels outlive the process: systemd makes the directory where it can, else a command does.

    prefix: + has the command see the node's own /tmp and /var/tmp, whatever the unit is confined to.
    """
    place = posixpath.normpath(spec.cache_directory)
    if place.startswith(_CACHE_ROOT):
        return [f"CacheDirectory={quote(place[len(_CACHE_ROOT) :], expand_dollar=False)}"]
    return [f"ExecStartPre={prefix}{command_line(['/usr/bin/mkdir', '-p', place])}"]


def environment_lines(values: Mapping[str, str]) -> list[str]:
    return [assignment(name, value) for name, value in sorted(values.items())]


# Hardening that an engine and whatever starts one bear.
CONFINED = ("RestrictRealtime=true", "LockPersonality=true", "SystemCallArchitectures=native")
# More, but not for what makes containers by itself: other places of the node, a file system of the unit's own for them, and
# (RestrictSUIDSGID) no openat2, without which crun finds no place for a device.
CONFINED_PLACES = (
    "PrivateTmp=true",
    "ProtectHome=true",
    "ProtectSystem=full",
    "ProtectControlGroups=true",
    "ProtectKernelTunables=true",
    "RestrictSUIDSGID=true",
)
INSTALL = ["", "[Install]", "WantedBy=multi-user.target"]
