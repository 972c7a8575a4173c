# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings: names, values, and the files that systemd-sysctl reads at boot; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

HEADER = "# Managed by gb10.ring (role memory); changes are overwritten.\n"

_KEY = re.compile(r"[a-z0-9_]+(?:[./][A-Za-z0-9_-]+)+")


@dataclass(frozen=True)
class ConfigFile:
    """A sysctl.d file. rank: place of its directory, 0 for the one that wins (/etc before /run before /usr)."""

    path: str
    rank: int
    text: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Foreign:
    """A line of somebody else's file that gives one of our settings another value after ours at boot."""

    path: str
    line: int
    key: str
    value: str

    def text(self) -> str:
        return f"{self.path}:{self.line}: {self.key} = {self.value}"


def normalised(value: str) -> str:
    """A value as it is compared: one blank between words, since the kernel prints tabs."""
    return " ".join(value.split())


def first_line(text: str) -> str:
    """The value that a /proc/sys file holds: its first line, normalised."""
    return normalised(text.split("\n", 1)[0])


def selected(text: str) -> str:
    """The value of a file that lists its choices and marks the one in force, as transparent_hugepage does; else its first line."""
    line = first_line(text)
    marked = re.search(r"\[(\S+)\]", line)
    return marked[1] if marked else line


def wanted_settings(given: Mapping[str, object], option: str = "sysctls") -> tuple[dict[str, str], list[str]]:
    """Option values as text by key, and a message for each that cannot be used."""
    wanted: dict[str, str] = {}
    problems = []
    for key, value in given.items():
        if value is None:  # leaves a profile's setting alone; overlay takes it out
            continue
        if not _KEY.fullmatch(key):
            problems.append(f"{option}: {key!r} is not the name of a kernel setting; names look like vm.swappiness")
        elif isinstance(value, bool) or not isinstance(value, (int, str)) or not normalised(str(value)):
            problems.append(f"{option}: {key} is {value!r}; a number or a text is allowed")
        else:
            wanted[canonical(key)] = normalised(str(value))
    return wanted, problems


def overlay(base: Mapping[str, str], given: Mapping[str, object], wanted: Mapping[str, str]) -> dict[str, str]:
    """The settings of a profile with a user's own in their place. given: as they came, null taking a setting out; wanted: checked."""
    dropped = {canonical(key) for key, value in given.items() if value is None}
    return {key: value for key, value in {**base, **wanted}.items() if key not in dropped}


def canonical(key: str) -> str:
    """The key with dots between its parts. As in sysctl.d(5), a key whose first separator is a slash is a path."""
    separator = re.search(r"[./]", key)
    if separator is None or separator[0] == ".":
        return key
    return key.translate(str.maketrans("./", "/."))


def relative_path(key: str) -> str:
    """Where a canonical key lies below /proc/sys: dots are slashes, slashes (of interface names) are dots."""
    return key.translate(str.maketrans("./", "/."))


def render(wanted: Mapping[str, str]) -> str:
    """The text of our sysctl.d file; empty when nothing is wanted, which stands for no file."""
    if not wanted:
        return ""
    return HEADER + "".join(f"{key} = {wanted[key]}\n" for key in sorted(wanted))


def assignments(text: str) -> list[tuple[int, str, str]]:
    """Line number, canonical key and value of each assignment. Patterns are left out: an explicit key beats them."""
    found = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        key, value = line.split("=", 1)
        key = key.strip().removeprefix("-")
        if not set(key) & set("*?["):
            found.append((number, canonical(key), normalised(value)))
    return found


def read_order(files: Iterable[ConfigFile]) -> list[ConfigFile]:
    """Files in the order in which systemd-sysctl reads them: by name; of equal names only the strongest directory's."""
    strongest: dict[str, ConfigFile] = {}
    for file in sorted(files, key=lambda file: file.rank):
        strongest.setdefault(file.name, file)
    return [strongest[name] for name in sorted(strongest)]


def foreign(files: Iterable[ConfigFile], ours: str, wanted: Mapping[str, str]) -> tuple[Foreign, ...]:
    """Assignments read after our file (named ours) that end at another value than the wanted one."""
    last: dict[str, Foreign] = {}
    for file in read_order(files):
        if file.name > ours:
            for number, key, value in assignments(file.text):
                if key in wanted:
                    last[key] = Foreign(file.path, number, key, value)
    return tuple(last[key] for key in sorted(last) if last[key].value != wanted[key])
