# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Incidents: their names, the logs that belong to them, how a log travels in words, and the directory that keeps the last ones.

A copy runs on the nodes without Ansible, so this file imports the standard library only.
"""

from __future__ import annotations

import base64
import calendar
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LINES = 200
BYTES = 32 * 1024
KEPT = 10
ONE_INCIDENT_S = 20
PIECE = 600  # characters of a log in one word
PIECES = 64
_NAME = re.compile(r"20\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3])([0-5]\d){2}\d{3}Z-[0-9a-f]{6}")
# Tokens and keys as engines and libraries print them; a log is kept for people to pass on.
_SECRETS = re.compile(
    r"(hf_|sk-|AKIA|ASIA|ghp_)[A-Za-z0-9_-]{8,}"
    r"|(?i:(authorization|api[_-]?key|secret[a-z_-]*|token|password)(['\"]?\s*[=:]\s*['\"]?(bearer\s+)?))[^\s'\",;]+"
)


def new_name(wall: float, random: str) -> str:
    """Sorts by time, to the millisecond: of two names of one incident the lesser is that of the rank that ended first."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(wall))}{int(wall * 1000) % 1000:03}Z-{random[:6]}"


def seconds_of(name: str) -> int:
    """When it began, in Unix seconds; 0 for what is no name."""
    return calendar.timegm(time.strptime(name[:15], "%Y%m%dT%H%M%S")) if is_name(name) else 0


def together(one: str, other: str) -> bool:
    """Whether two names are of one incident: ranks that fail soon after each other."""
    return is_name(one) and is_name(other) and abs(seconds_of(one) - seconds_of(other)) < ONE_INCIDENT_S


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text))


def node_in(why: str, nodes: Sequence[str]) -> str:
    """The node that a reason begins with; empty when it is of no single node, as an order's may be."""
    return next((node for node in nodes if re.match(rf"{re.escape(node)}[: ]", why)), "")


def tidy(lines: Sequence[str]) -> str:
    """The last lines, within the bounds of a log, without what looks like a secret."""
    text = "\n".join(_SECRETS.sub(_hidden, line) for line in lines[-LINES:])
    return text.encode()[-BYTES:].decode("utf-8", "ignore")


def _hidden(found: re.Match[str]) -> str:
    return f"{found[1]}..." if found[1] else f"{found[2]}{found[3]}..."


def pack(name: str, text: str) -> list[str]:
    """The words in which a log travels: name, number, count, and a piece of the compressed text."""
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    pieces = [packed[start : start + PIECE] for start in range(0, len(packed), PIECE)]
    if len(pieces) > PIECES:  # hardly compressible: half of it, from the end
        return pack(name, text[len(text) // 2 :])
    return [f"{name} {number} {len(pieces)} {piece}" for number, piece in enumerate(pieces)]


class Gathered:
    """Pieces of a neighbour's log until all of them are there."""

    def __init__(self) -> None:
        self._name, self._count = "", 0
        self._pieces: dict[int, str] = {}

    def add(self, word: str) -> tuple[str, str] | None:
        """(incident, log) once it is complete; words that make no sense are passed over."""
        name, number, count, piece = (*word.split(" "), "", "", "", "")[:4]
        if not is_name(name) or not number.isdigit() or not count.isdigit() or not 0 < int(count) <= PIECES:
            return None
        if (name, int(count)) != (self._name, self._count):
            self._name, self._count, self._pieces = name, int(count), {}
        self._pieces[int(number)] = piece
        if set(self._pieces) != set(range(self._count)):
            return None
        packed = "".join(self._pieces[index] for index in range(self._count))
        self._pieces = {}
        inflate = zlib.decompressobj()
        try:
            text = inflate.decompress(base64.b64decode(packed, validate=True), 2 * BYTES)
        except (ValueError, zlib.error):
            return None
        return (name, text.decode("utf-8", "replace")) if inflate.eof else None


class Store:
    """The directory of incidents: a directory each, root only, the last KEPT of them."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def open(self, name: str, about: Mapping[str, Any], known: bool = False) -> None:
        """Begin an incident, or let one that is there be; known: what it is about is certain, and is written anew. Raises OSError."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.root / name
        if known or not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
            self._write(place / "incident.json", json.dumps({"id": name, **about}, indent=2, sort_keys=True) + "\n")
        mine = sorted(entry.name for entry in self.root.iterdir() if is_name(entry.name))
        for old in mine[:-KEPT]:
            shutil.rmtree(self.root / old, ignore_errors=True)

    def add(self, name: str, node: str, text: str) -> None:
        """Keep a rank's log. Raises OSError."""
        self._write(self.root / name / f"{node}.log", text if text.endswith("\n") else text + "\n")

    def join(self, old: str, name: str) -> None:
        """What was kept under another name of the same incident goes to it. Raises OSError."""
        source = self.root / old
        for log in source.glob("*.log") if source.is_dir() else ():
            log.replace(self.root / name / log.name)
        shutil.rmtree(source, ignore_errors=True)

    def logs(self, name: str) -> list[str]:
        """Nodes whose log is there."""
        return sorted(path.stem for path in (self.root / name).glob("*.log"))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        beside = path.with_name(f".{path.name}")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as handle:
            handle.write(text)
        beside.replace(path)
