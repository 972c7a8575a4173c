# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drops a machine's page cache and waits until an engine's memory is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..host import HostError, read_text, run
from . import holders, room
from .holders import Process
from .room import Need

SYNC_TIMEOUT_S = 600.0  # tens of GB of fresh files to a busy disk
POLL_S = 1.0
FIGURES = ("MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem")


@dataclass(frozen=True)
class Outcome:
    """Figures in KiB by name of /proc/meminfo. refusal: empty when the engine's memory is there."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    dropped: bool
    waited_s: float
    refusal: str


def memory(proc: Path) -> dict[str, int]:
    return holders.fields(read_text(proc / "meminfo") or "")


def drop(proc: Path) -> None:
    """Write back what is dirty, then let go of everything clean. Raises HostError."""
    run(["sync"], timeout=SYNC_TIMEOUT_S)
    try:
        (proc / "sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError as error:
        raise HostError(
            f"cannot write {proc}/sys/vm/drop_caches: {error.strerror}; this needs root on the machine itself"
        ) from error


def make_room(
    proc: Path, need: Need, wants_drop: bool, timeout_s: float, processes: Callable[[], tuple[Process, ...]]
) -> Outcome:
    """Drop where the engine wants it, then wait. Raises HostError."""
    before = memory(proc)
    hopeless = room.too_small(need, before)
    if hopeless:
        return Outcome(before, before, False, 0.0, hopeless)
    if wants_drop:
        drop(proc)
    start = time.monotonic()
    now = memory(proc)
    while not room.fits(need, now) and time.monotonic() - start < timeout_s:
        time.sleep(min(POLL_S, timeout_s))
        now = memory(proc)
    waited = time.monotonic() - start
    refusal = "" if room.fits(need, now) else room.refusal(need, now, processes(), waited)
    return Outcome(before, now, wants_drop, waited, refusal)
