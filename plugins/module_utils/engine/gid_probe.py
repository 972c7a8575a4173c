# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds, at each start of the engine, the RoCE v2 GID of each RDMA device that is the node's fabric address.

Its index differs between nodes and moves after an address or a link changed, so nothing may keep it. The engine's unit runs
this file before the engine: engine-gid.py [--wait SECONDS] [--boot-wait SECONDS] [--variable NAME]... -- DIRECTORY DEVICE=ADDRESS...

A cable has no carrier, and its ports no address, until the nodes at both ends are up: a start that nobody has ordered, which is a boot's,
looks again for the longer time.

It stands alone (standard library): the node has no copy of the collection.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SYSFS = "/sys/class/infiniband"
HASH_VARIABLE = "GB10_RING_ENGINE_HASH"
INTENT = "gb10-ring-group/intent.json"  # beside DIRECTORY: what role and supervisor meant last, gone with a boot
_KIND = "RoCE v2"
_POLL_S = 0.5


class ProbeError(Exception):
    """No usable index; the text is what the journal says."""


def indexes(root: Path, device: str, address: str) -> list[int]:
    """Every index of port 1 at which the device's RoCE v2 GID is this IPv4 address."""
    port = root / device / "ports/1"
    wanted = ipaddress.IPv6Address(f"::ffff:{address}")
    return sorted(
        int(entry.name) for entry in (port / "gids").glob("*") if entry.name.isdigit() and _is(port, entry, wanted)
    )


def _is(port: Path, entry: Path, wanted: ipaddress.IPv6Address) -> bool:
    try:
        if ipaddress.IPv6Address(entry.read_text(encoding="ascii").strip()) != wanted:
            return False
        return (port / "gid_attrs/types" / entry.name).read_text(encoding="ascii").strip() == _KIND
    except (OSError, ValueError):
        return False  # the kernel answers an empty slot's type with an error


def probe(root: Path, devices: Mapping[str, str]) -> dict[str, list[int]]:
    """The indexes of each device. Raises ProbeError that names every device without one."""
    found = {device: indexes(root, device, address) for device, address in devices.items()}
    missing = [f"{device} has no {_KIND} GID for {devices[device]}" for device, held in found.items() if not held]
    if missing:
        raise ProbeError(
            f"{'; '.join(missing)}. Expected the address on the device's netdev and its port up: look at `ip addr` and the cables "
            "(playbooks/verify.yml)"
        )
    return found


def common(found: Mapping[str, list[int]], variables: Sequence[str]) -> int:
    """The one index for variables that take a single number for all devices. Raises ProbeError."""
    shared = set.intersection(*(set(held) for held in found.values()))
    if not shared:
        seen = ", ".join(f"{device} {held}" for device, held in found.items())
        raise ProbeError(
            f"{', '.join(variables)} takes one index for all devices, found {seen}. Cure: take the fabric's netdevs down and up again in "
            "the same order on this node (`networkctl down`, `networkctl up`), or reboot it: addresses that arrive in the same order get "
            "the same index"
        )
    return min(shared)


def ordered(directory: Path) -> bool:
    """Whether this start was announced."""
    try:
        said = json.loads((directory.parent / INTENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("want") == "started"


def lines(index: int, variables: Sequence[str]) -> str:
    """The environment file."""
    return "".join(f"{name}={index}\n" for name in variables)


def main(argv: Sequence[str], root: str = SYSFS) -> int:
    parser = argparse.ArgumentParser(prog="engine-gid")
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--boot-wait", type=float, default=0.0)
    parser.add_argument("--variable", action="append", default=[])
    parser.add_argument("directory", type=Path)
    parser.add_argument("devices", nargs="+", metavar="DEVICE=ADDRESS")
    given = parser.parse_args(argv)
    wait = given.wait if ordered(given.directory) else max(given.wait, given.boot_wait)
    limit, said = time.monotonic() + wait, ""
    while True:
        try:
            found = probe(Path(root), dict(pair.split("=", 1) for pair in given.devices))
            text = lines(common(found, given.variable), given.variable) if given.variable else ""
            break
        except ProbeError as error:
            late = time.monotonic() >= limit
            if late:
                _say(str(error))
            elif str(error) != said:
                _say(f"{error}; looked for again for {wait:g} s")
            said = str(error)
        if late:
            return 1
        time.sleep(_POLL_S)
    (given.directory / "gid.env").write_text(text, encoding="ascii")
    (given.directory / "hash").write_text(os.environ.get(HASH_VARIABLE, ""), encoding="ascii")
    _say(", ".join(f"{device} index {held[0]}" for device, held in found.items()))
    return 0


def _say(text: str) -> None:
    """A line of the unit's journal, at once."""
    sys.stderr.write(f"engine-gid: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
