# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One staging of a checkpoint at a time on a node."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from .. import made
from ..host import HostError
from .layout import Layout
from .watch import lock_patience


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """One staging of a checkpoint at a time on this node. Raises HostError when another one runs and does not end."""
    made.note([layout.base], Path(layout.root))
    layout.stagings.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with layout.lock.open("w") as handle:
        while not _taken(handle):
            patience = lock_patience(layout.stagings)
            if time.monotonic() - began > patience:
                raise HostError(
                    f"another run is staging {layout.name} on this node ({layout.lock} is locked, waited {patience:.0f} s); "
                    "wait for it, or end it"
                )
            time.sleep(0.2)
        yield


def _taken(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
