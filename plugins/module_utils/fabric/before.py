# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the network was before gb10.ring: kept at the first change, used by uninstall; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .netplan import DEFAULT_MTU, LinkState

FOLDER = "/var/lib/gb10-ring/network-before"
RECORD = f"{FOLDER}/record.json"
FOREIGN = "foreign"  # edited or removed, comes back
QUARANTINED = "quarantined"  # renamed because netplan does not accept it, stays renamed
_STATE_KEYS = ("up", "mtu", "master", "addresses", "link_local", "routes", "ipv6")


@dataclass(frozen=True)
class Kept:
    """A file as it was. after: digest of what we left in its place, empty for nothing."""

    path: str
    text: str
    mode: int
    owner: tuple[int, int]
    after: str
    kind: str = FOREIGN


@dataclass(frozen=True)
class Known:
    """The record: files by path (without their text), and interfaces by name."""

    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    links: Mapping[str, LinkState] = field(default_factory=dict)


def load(text: str | None) -> Known:
    found = json.loads(text) if text else {}
    return Known({entry["path"]: entry for entry in found.get("files", [])}, found.get("links", {}))


def digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def copy_path(path: str) -> str:
    """Where the original of a file is kept."""
    return FOLDER + path


def keep(path: str, text: str, stat: tuple[int, int, int], after: str | None, kind: str) -> Kept:
    return Kept(path, text, stat[0], (stat[1], stat[2]), digest(after), kind)


def edits(known: Known, kept: Sequence[Kept], links: Mapping[str, LinkState]) -> dict[str, str]:
    """The files of the record by path, after a change that replaces ``kept`` and touches ``links`` for the first time."""
    entries = {**known.files, **{each.path: _entry(each) for each in kept}}
    states = {name: {key: state[key] for key in _STATE_KEYS if key in state} for name, state in links.items()}
    content = {"version": 1, "files": list(entries.values()), "links": {**states, **known.links}}
    return {RECORD: json.dumps(content, indent=1) + "\n", **{copy_path(each.path): each.text for each in kept}}


def _entry(kept: Kept) -> dict[str, Any]:
    return {key: value for key, value in asdict(kept).items() if key != "text"}


def returns(known: Known, files: Mapping[str, str]) -> tuple[list[Kept], list[str]]:
    """Files to bring back, and notes about those that stay as they are. files: texts now, the kept originals among them."""
    back, notes = [], []
    for path, entry in known.files.items():
        original = files.get(copy_path(path))
        if entry["kind"] == QUARANTINED:
            notes.append(
                f"{path} stays renamed: netplan does not accept it, and one such file keeps it from reading any"
            )
        elif original is None:
            notes.append(f"{path} cannot come back: its original {copy_path(path)} is gone")
        elif digest(files.get(path)) != entry["after"]:
            notes.append(f"{path} was changed since and stays so; its original is {copy_path(path)}")
        else:
            owner = (int(entry["owner"][0]), int(entry["owner"][1]))
            back.append(Kept(path, original, int(entry["mode"]), owner, "", FOREIGN))
    return back, notes


def forgotten(known: Known, returned: Sequence[Kept]) -> list[str]:
    """Files of the record to remove when all is back; originals that did not come back stay."""
    quarantined = [path for path, entry in known.files.items() if entry["kind"] == QUARANTINED]
    return [RECORD, *(copy_path(kept.path) for kept in returned), *(copy_path(path) for path in quarantined)]


def released(known: Known, name: str, seen: LinkState | None, definition: Mapping[str, Any]) -> dict[str, Any]:
    """What an interface should be without our file: as recorded, else without the addresses that the file gave it."""
    if name in known.links:
        state = dict(known.links[name])
        state["addresses"] = [address for address in state["addresses"] if not address["dynamic"]]
        return {**state, "keep_dynamic": True}
    if seen is None:
        return {}
    given = definition.get("addresses", [])
    left = [address for address in seen["addresses"] if address["cidr"] not in given]
    return {"mtu": DEFAULT_MTU, "addresses": left, "keep_dynamic": True}
