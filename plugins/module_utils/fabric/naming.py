# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports that have their names from netplan's ``set-name``: our entry has to go on giving it, else the next boot takes it away; pure."""

from __future__ import annotations

import configparser
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .foreign import Netdev, fits

# What netplan 0.106 and 1.1 write into [Match] of a .link file, and the key of ``match`` that it comes from
_KEYS = {"permanentmacaddress": "macaddress", "macaddress": "macaddress", "originalname": "name", "driver": "driver"}

Match = dict[str, Any]


def namings(
    ports: Collection[str],
    link_files: Mapping[str, str],
    own: Mapping[str, Mapping[str, Any]],
    netdevs: Iterable[Netdev],
) -> dict[str, Match]:
    """netdev -> ``match`` of the entry that names it.

    link_files: texts by path of those that netplan generated: what udev names interfaces by now, whichever file it is from. own:
    entries of our file, which know it when none was generated. One that no longer fits the interface (another adapter) is let go.
    """
    there = {netdev.name: netdev for netdev in netdevs}
    known = [found for path in sorted(link_files) if (found := _read(link_files[path])) is not None]
    known += [
        (name, dict(body["match"])) for name, body in own.items() if isinstance(body.get("match"), Mapping)
    ]  # the entry of a port has the port's name
    chosen: dict[str, Match] = {}
    for name, match in known:
        if name in ports and (name not in there or fits(match, there[name])):
            chosen.setdefault(name, match)
    return chosen


def _read(text: str) -> tuple[str, Match] | None:
    """The name that a .link file gives, and to which interface; None when it gives none or is not in netplan's form."""
    link = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    try:
        link.read_string(text)
    except configparser.Error:
        return None
    name = link.get("Link", "Name", fallback="")
    keys = dict(link["Match"]) if link.has_section("Match") else {}
    if not name or not keys or not keys.keys() <= _KEYS.keys():
        return None
    return name, {_KEYS[key]: _value(key, value) for key, value in keys.items()}


def _value(key: str, text: str) -> str | list[str]:
    """Drivers are the one list that netplan takes."""
    words = text.split()
    return words if key == "driver" and len(words) > 1 else text
