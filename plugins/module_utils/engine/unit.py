# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of the engine's systemd unit: quoting by systemd's rules (systemd.syntax, systemd.service) and the unit itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAME = "gb10-ring-engine.service"
CACHE = "gb10-ring-engine"  # below /var/cache: compiled kernels live there, since the unit cannot see home directories
HASH_VARIABLE = "GB10_RING_ENGINE_HASH"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./${}\[\]-]+\Z")


@dataclass(frozen=True)
class UnitSettings:
    """What the unit is rendered from. model_root: the directory above revisions/, read-only to the engine."""

    description: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    model_root: str
    stop_timeout_s: int
    limit_memlock: str
    limit_nofile: int
    oom_score_adjust: int


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


def assignment(name: str, value: str) -> str:
    """One Environment= line."""
    return f"Environment={quote(f'{name}={value}', expand_dollar=False)}"


def digest(text: str) -> str:
    """Identity of a configuration: 16 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def render(settings: UnitSettings, identity: str) -> str:
    """The unit's text. identity: what else decides whether a running engine is current (the model's configuration)."""
    mark = digest(_render(settings, "") + identity)
    return _render(settings, mark)


def _render(settings: UnitSettings, mark: str) -> str:
    lines = [
        "# Managed by gb10.ring (module engine_unit): changes here are overwritten.",
        "[Unit]",
        f"Description={settings.description.replace('%', '%%')}",
        "After=network-online.target",
        "Wants=network-online.target",
        f"RequiresMountsFor={quote(settings.model_root, expand_dollar=False)}",
        "# A rank that waits for its group may fail many times before the last node is up.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=simple",
        f"WorkingDirectory={settings.model_root.replace('%', '%%')}",
        *(assignment(name, value) for name, value in sorted(settings.env.items())),
        assignment(HASH_VARIABLE, mark),
        f"ExecStart={command_line(settings.argv)}",
        "Restart=on-failure",
        "RestartSec=10",
        f"TimeoutStopSec={settings.stop_timeout_s}",
        f"LimitMEMLOCK={settings.limit_memlock}",
        f"LimitNOFILE={settings.limit_nofile}",
        "# When memory runs out the kernel takes the engine, not sshd.",
        f"OOMScoreAdjust={settings.oom_score_adjust}",
        f"CacheDirectory={CACHE}",
        f"ReadOnlyPaths={quote(settings.model_root, expand_dollar=False)}",
        "NoNewPrivileges=true",
        "PrivateTmp=true",
        "ProtectHome=true",
        "ProtectSystem=full",
        "ProtectControlGroups=true",
        "ProtectKernelTunables=true",
        "RestrictSUIDSGID=true",
        "LockPersonality=true",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def hash_of(unit_text: str | None) -> str:
    """The configuration hash that a unit's text carries, or an empty text."""
    found = re.search(rf"^Environment={HASH_VARIABLE}=([0-9a-f]+)$", unit_text or "", re.MULTILINE)
    return found[1] if found else ""


def hash_in_environ(environ: bytes) -> str:
    """The configuration hash that a process was started with, from its /proc/PID/environ."""
    prefix = f"{HASH_VARIABLE}=".encode()
    return next(
        (part[len(prefix) :].decode("ascii", "replace") for part in environ.split(b"\0") if part.startswith(prefix)), ""
    )
