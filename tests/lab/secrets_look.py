# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks on nodes for signed addresses and keys, while a task runs and after it: as root, and as a user with no rights."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from fanout_run import staging_runs
from site_run import NODES, on

#: Holds what is looked for and anybody may read it: a look that does not find it sees nothing.
DECOY = "/tmp/decoy"
_PLACES = "/root /home /tmp /var/tmp /var/lib/gb10-ring /var/log /etc /run /dev/shm"


def _hidden(text: str) -> str:
    """A pattern for this text that does not match itself: the search is in the process list too."""
    return f"{text[:-1]}[{text[-1]}]"


def _patterns() -> str:
    text = Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).read_text(encoding="utf-8")
    secrets = re.findall(r"secret_access_key *= *(\S+)", text)
    return " ".join(f"-e '{_hidden(secret)}'" for secret in ("X-Amz-Signature=", *secrets))


def in_processes(node: str, user: str = "root") -> list[str]:
    """Processes that have one in arguments or environment, as far as this user may read these."""
    search = f"grep -lsaG {_patterns()} /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    return on(node, f"runuser -u {user} -- {search} || true").split()


def in_files(node: str, user: str = "root") -> list[str]:
    """Files with one that this user can read."""
    return on(node, f"runuser -u {user} -- grep -rlsaG -D skip {_patterns()} {_PLACES} || true").split()


def everybodys(node: str) -> list[str]:
    """What somebody without rights finds, processes included."""
    return [*in_files(node, "nobody"), *in_processes(node, "nobody")]


@dataclass
class Look:
    running: bool
    processes: list[str]
    everybodys: list[str]


@dataclass
class Looking:
    """Looks again and again while a block runs."""

    looks: dict[str, list[Look]] = field(default_factory=lambda: {node: [] for node in NODES})
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Looking:
        for node in NODES:
            on(node, f"echo X-Amz-Signature=decoy >{DECOY}; chmod 644 {DECOY}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        for node in NODES:
            on(node, f"rm -f {DECOY}")

    def _run(self) -> None:
        with ThreadPoolExecutor(len(NODES)) as pool:
            while not self._end.wait(0.5):
                for node, look in zip(NODES, pool.map(self._look, NODES), strict=True):
                    self.looks[node].append(look)

    @staticmethod
    def _look(node: str) -> Look:
        return Look(staging_runs(node), in_processes(node), everybodys(node))
