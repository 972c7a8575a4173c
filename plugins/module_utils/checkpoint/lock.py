# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One staging of a checkpoint at a time on a node."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator

from ..host import HostError
from .layout import Layout


@contextlib.contextmanager
def locked(
    layout: Layout,
    patience: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """One staging of a checkpoint at a time on this node.

    Another one is waited for as long as it makes progress: its controller may be gone, and what it brings is wanted. Raises
    HostError when it has made none for so many seconds.
    """
    layout.stagings.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as handle:
        seen, since = _sign(layout), clock()
        while not _taken(handle.fileno()):
            now, sign = clock(), _sign(layout)
            if sign != seen:
                seen, since = sign, now
            if now - since >= patience:
                raise HostError(
                    f"another run is staging {layout.name} on this node ({layout.lock} is locked) and made no progress for "
                    f"{patience:.0f} s; wait for it, or end it"
                )
            sleep(0.5)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(layout: Layout) -> tuple[tuple[str, int], ...]:
    """What changes while a staging moves bytes."""
    found = []
    for path in layout.stagings.glob("*.progress"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_mtime_ns))
    return tuple(sorted(found))
