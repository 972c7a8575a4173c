# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether somebody is looking, and lines for whoever is."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

#: Seconds between two lines.
PACE = 5.0


def wanted(choice: str) -> bool:
    """Whether lines of progress are to be shown. choice: on, off, or auto: when the output is a terminal."""
    return choice == "on" or (choice == "auto" and _is_terminal())


def _is_terminal() -> bool:
    """Of the ansible process, that is: a worker's own output goes nowhere."""
    return any(_leads_to_terminal(place) for place in ("/proc/self/fd/1", f"/proc/{os.getppid()}/fd/1"))


def _leads_to_terminal(place: str) -> bool:
    try:
        target = str(Path(place).readlink())
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty"))


@contextlib.contextmanager
def lines(text: Callable[[], str], show: Callable[[str], object] | None) -> Iterator[None]:
    """Show the text at a steady pace while the block runs, when it has changed. show: None shows nothing."""
    if show is None:
        yield
        return
    end = threading.Event()

    def run() -> None:
        last = ""
        while not end.wait(PACE):
            now = text()
            if now != last:
                show(now)
            last = now

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
