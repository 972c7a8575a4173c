# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rank was started with, and what was seen of it since: what every judge of gates.py works on; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..checkpoint import engram
from ..fabric import nccl
from ..report.checks import Check

RESTART = "restart the group (the engine role with engine_restart_allowed: true) after correcting it"
Tables = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Started:
    """What the rank was started with, from its record. log_lines: {text, want, means} of this rank.

    planned: RDMA devices of every planned port. crossed: whether a cable joins different ports of its two nodes; None: not known.
    tables: the rank's rows of each Engram table by the checkpoint's config.json, by layer; empty: not known.
    """

    rank: int = 0
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    log_lines: tuple[Mapping[str, str], ...] = ()
    engine: str = "vllm"
    shape: str = ""
    planned: tuple[str, ...] = ()
    crossed: bool | None = None
    tables: Tables = field(default_factory=dict)

    def option(self, flag: str) -> str | None:
        """Value of the last ``--flag value`` or ``--flag=value``."""
        found = None
        for at, word in enumerate(self.argv):
            if word == flag and at + 1 < len(self.argv):
                found = self.argv[at + 1]
            elif word.startswith(f"{flag}="):
                found = word.partition("=")[2]
        return found

    def mapping(self, flag: str) -> Mapping[str, Any]:
        """The option as a JSON object, empty when it is absent or something else."""
        try:
            held = json.loads(self.option(flag) or "{}")
        except ValueError:
            return {}
        return held if isinstance(held, dict) else {}

    def tells(self, subsystem: str) -> bool:
        """Whether NCCL prints what it does in this subsystem."""
        return nccl_tells(self.env, subsystem)


def nccl_tells(env: Mapping[str, str], subsystem: str) -> bool:
    """Whether NCCL with this environment prints what it does in the subsystem."""
    listed = env.get("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV").upper().split(",")
    return env.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE") and bool({subsystem, "ALL"} & set(listed))


@dataclass(frozen=True)
class Seen:
    """lines: of the running process, the oldest first. metrics: text of the head's /metrics; None: not asked, empty: no answer.

    version: text of the head's /version. unsearched: why a long log, of which lines has the ends, was not searched whole; empty: it was.
    """

    lines: tuple[str, ...] = ()
    metrics: str | None = None
    version: str = ""
    unsearched: str = ""

    def having(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


def started(
    record: Mapping[str, Any], ports: Sequence[Mapping[str, Any]] = (), config: Mapping[str, Any] | None = None
) -> Started:
    """From the rank's record (engine.json), the inventory's fabric_ports and the config.json of the revision that it serves."""
    expected = record.get("expected") or {}
    engine = str(record.get("engine") or "vllm")
    rank = int(record.get("rank", 0))
    return Started(
        rank=rank,
        argv=tuple(map(str, record.get("argv") or ())),
        env={str(name): str(value) for name, value in (record.get("env") or {}).items()},
        log_lines=tuple(expected.get("log_lines") or ()),
        engine=engine,
        shape=str(record.get("shape") or ""),
        planned=tuple(str(port["rdma_device"]) for port in ports),
        crossed=nccl.crossed(ports),
        tables=_tables(config, int(record.get("size", 0)), rank, engine),
    )


def _tables(config: Mapping[str, Any] | None, size: int, rank: int, engine: str) -> Tables:
    """Empty where the configuration has no Engram tables, or not of this form: checkpoint.engram tells of that."""
    try:
        held = engram.ranges(config or {}, size, engine)
    except engram.EngramError:
        return {}
    return {layer: (rows[0], rows[1]) for layer, rows in held[rank].items()} if rank < len(held) else {}


def shown(lines: Sequence[str], otherwise: str) -> str:
    return lines[-1].strip()[:300] if lines else otherwise


def untold(id: str, node: str, setting: str, needs: str) -> list[Check]:
    """A claim that these settings do not let anybody prove: it may hold, but nobody should call it good."""
    cure = f"set {needs}, restart the group, and look again"
    return [Check(id, node, False, f"not proven: {setting} is set, and nothing tells of it", needs, cure, "warning")]


def values(text: str, name: str) -> list[float]:
    """The values of a metric in Prometheus' text form, one for each of its labels."""
    rows = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)", text, re.MULTILINE)
    try:
        return [float(row) for row in rows]
    except ValueError:
        return []


def metric(text: str, name: str) -> float | None:
    """The sum of a counter over its labels, None when it is not there."""
    found = values(text, name)
    return sum(found) if found else None
