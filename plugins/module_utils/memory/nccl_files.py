# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's configuration files and its library on a machine: what would change the planned transport; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# NCCL reads these files where the environment does not say otherwise (NCCL user guide, NCCL_CONF_FILE). These variables the
# collection leaves unset on purpose, so that a file's value would count: a pinned GID index is wrong on one node or the next day, and
# without cuMem or runtime connection a ring of four cannot connect its trees.
STAYS_UNSET = (
    "NCCL_IB_GID_INDEX",
    "NCCL_CUMEM_ENABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_IB_SUBNET_PREFIX_LEN",
    "NCCL_CONF_FILE",
)
SUBNET_AWARE = b"NCCL_IB_SUBNET_AWARE_ROUTING"
SUBNET_AWARE_SINCE = (2, 30, 7)  # absent in 2.30.4, there in 2.30.7
BANNER = b"NCCL version "
_VERSION = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Assignment:
    """One line of a configuration file."""

    path: str
    line: int
    name: str
    value: str

    @property
    def harmful(self) -> bool:
        return self.name in STAYS_UNSET

    def text(self) -> str:
        return f"{self.path}:{self.line}: {self.name}={self.value}"


def assignments(files: Mapping[str, str]) -> list[Assignment]:
    """Assignments of NCCL's files; comments and anything else are left out."""
    found = []
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), start=1):
            given = re.match(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*$", line)
            if given:
                found.append(Assignment(path, number, given[1], given[2]))
    return found


@dataclass(frozen=True)
class Library:
    """A libnccl as its bytes show it. version is empty when they don't."""

    path: str
    version: tuple[int, ...] = ()
    subnet_aware: bool = False

    def text(self) -> str:
        version = ".".join(map(str, self.version)) or "of unknown version"
        return f"{self.path} {version} {'with' if self.subnet_aware else 'without'} subnet-aware routing"


def library_version(found: bytes) -> tuple[int, ...]:
    """The version in NCCL's own banner."""
    match = _VERSION.search(found)
    return tuple(int(part) for part in match.groups()) if match else ()
