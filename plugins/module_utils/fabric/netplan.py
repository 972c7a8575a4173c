# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of the fabric: its text, what would change on a machine, and what netplan's complaints mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..plan import Change, Plan
from .links import Link
from .ports import Port

FILE_MODE = 0o600  # netplan 1.1 warns on every call about a file that others can read

_HEADER = "# managed by gb10.ring: written from the topology file, changes made here are overwritten\n"
# No renderer key: the one that the machine uses stays. IPv6 stays off, so that RoCE v2 GIDs are those of the IPv4 addresses.
# optional: a port without a cable must not delay the boot.
_PORT = """\
    {netdev}:
      addresses:
        - {cidr}
      mtu: {mtu}
      dhcp4: false
      dhcp6: false
      accept-ra: false
      link-local: []
      optional: true
"""
_COMPLAINT = re.compile(r"(?P<path>/\S*/netplan/[^/:]+\.yaml):(?:(?P<line>\d+):\d+:)? (?P<what>.+)")


@dataclass(frozen=True)
class State:
    """What is on the machine: text and mode of the file (None: absent), and the interfaces by name."""

    text: str | None
    mode: int | None
    links: Mapping[str, Link]


@dataclass(frozen=True)
class NetplanPlan:
    """plan: all changes. text: the file as wanted. rewrite: write the file. activate: run ``netplan apply``."""

    plan: Plan
    text: str
    rewrite: bool
    activate: bool


def render(ports: Sequence[Port], mtu: int) -> str:
    """The file's text; the same ports give the same bytes."""
    entries = [_PORT.format(netdev=port.netdev, cidr=port.cidr, mtu=mtu) for port in ports]
    return f"{_HEADER}network:\n  version: 2\n  ethernets:\n{''.join(entries)}"


def plan_netplan(path: str, ports: Sequence[Port], mtu: int, state: State) -> NetplanPlan:
    """Compare the machine with what is wanted."""
    text = render(ports, mtu)
    file_changes = _file_changes(path, text, state)
    links = drift(ports, mtu, state.links)
    return NetplanPlan(
        plan=Plan((*file_changes, *links)),
        text=text,
        rewrite=bool(file_changes),
        activate=text != state.text or bool(links),
    )


def _file_changes(path: str, text: str, state: State) -> tuple[Change, ...]:
    if state.text is None:
        return (Change(path, "", text, "absent"),)
    if state.text != text:
        return (Change(path, state.text, text, "differs from the topology"),)
    if state.mode != FILE_MODE:
        mode = "unknown" if state.mode is None else f"{state.mode:04o}"
        return (Change(path, f"mode {mode}", f"mode {FILE_MODE:04o}", "netplan wants it closed to others"),)
    return ()


def drift(ports: Sequence[Port], mtu: int, links: Mapping[str, Link]) -> tuple[Change, ...]:
    """Interfaces that are not as the file has them.

    One that is absent (unplugged, powered off) or waits for its other end cannot be judged: it gets its address with carrier.
    """
    changes = []
    for port in ports:
        link = links.get(port.netdev)
        if link is None or (link.up and not link.carrier):
            continue
        if not link.up or link.ipv4 != (port.cidr,) or link.mtu != mtu:
            changes.append(Change(port.netdev, link.describe(), f"{port.cidr}, mtu {mtu}", "interface differs"))
    return tuple(changes)


def explain_refusal(said: str, root: str, own: str) -> str:
    """What ``netplan generate`` said about a copy under ``root``, as a message about the machine's own files.

    own: path of the fabric's file. Only the place and the reason are kept: the lines that netplan quotes may hold secrets.
    """
    found = _COMPLAINT.search(said.replace(root, ""))
    if found is None:
        lines = (said.strip() or "no output").replace(root, "").splitlines()
        reason = next((line for line in lines if "rror" in line), lines[-1])
        return f"netplan generate failed on a copy of the machine's configuration: {reason}. Nothing was changed."
    path = found["path"]
    what = found["what"].strip().rstrip(":")
    cure = (
        "This file is written by gb10.ring: please report it with the topology file."
        if path == own
        else "Cure: repair that file, or move it out of the netplan directories; netplan ignores every file until then."
    )
    place = f"{path}, line {found['line']}" if found["line"] else path
    return f"{place}: netplan does not accept it: {what}. Nothing was changed. {cure}"
