# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ethernet frame of the cabling probe, and the filter that lets the kernel pass nothing else of interest. Pure.

A frame is a broadcast of the local experimental EtherType 0x88B5 (IEEE 802): header, magic, version, length, JSON.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

ETHERTYPE = 0x88B5
BROADCAST = b"\xff" * 6
MAGIC = b"GB10RING"
VERSION = 1
_HEAD = struct.Struct("!6s6sH8sBH")
_TEXT = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
_ROOM = 1400  # bytes of a whole frame: below the smallest MTU that a fabric port may have


@dataclass(frozen=True)
class Hello:
    """Who sends: one netdev of one machine, in one run of the probe (nonce)."""

    nonce: str
    machine: str
    node: str
    netdev: str
    port: int
    rail: int


@dataclass(frozen=True)
class Received:
    """A frame that was heard: its sender's address, and what it says when it is a frame of the probe."""

    mac: str
    hello: Hello | None


def encode(hello: Hello, mac: str) -> bytes:
    """The frame that a netdev of that address sends. Raises ValueError for text that a receiver would refuse."""
    values = [hello.nonce, hello.machine, hello.node, hello.netdev, hello.port, hello.rail]
    if _hello(values) is None:
        raise ValueError(f"not fit for a frame: {values}")
    body = json.dumps(values, separators=(",", ":")).encode("ascii")
    return _HEAD.pack(BROADCAST, bytes.fromhex(mac.replace(":", "")), ETHERTYPE, MAGIC, VERSION, len(body)) + body


def decode(frame: bytes) -> Received | None:
    """What a frame from the wire says; whatever is not exactly a frame of ours has no hello. None: too short to have a sender."""
    if len(frame) < 14:
        return None
    mac = frame[6:12].hex(":")
    if len(frame) < _HEAD.size or len(frame) > _ROOM:
        return Received(mac, None)
    _to, _from, ethertype, magic, version, length = _HEAD.unpack_from(frame)
    if (ethertype, magic, version) != (ETHERTYPE, MAGIC, VERSION):
        return Received(mac, None)
    try:
        values = json.loads(frame[_HEAD.size : _HEAD.size + length])
    except (ValueError, RecursionError):
        return Received(mac, None)
    return Received(mac, _hello(values))


def _hello(values: object) -> Hello | None:
    """Anybody may send such frames, and their text ends in messages to a person: letters, digits and a few signs only."""
    if not isinstance(values, list) or len(values) != 6:
        return None
    texts, numbers = values[:4], values[4:]
    if not all(isinstance(text, str) and _TEXT.fullmatch(text) for text in texts):
        return None
    if not all(isinstance(number, int) and not isinstance(number, bool) and number in (0, 1) for number in numbers):
        return None
    return Hello(*texts, *numbers)


def filter_program() -> bytes:
    """Classic BPF: pass broadcasts and multicasts, drop the rest, so that traffic on a busy fabric costs nothing.

    Besides the probe's own frames these are what a machine that does not take part says by itself: LLDP, ARP, DHCP, IPv6.
    """
    load_byte, jump_if_bit, result = 0x30, 0x45, 0x06
    lines = (
        (load_byte, 0, 0, 0),  # first byte of the destination
        (jump_if_bit, 0, 1, 1),  # its group bit
        (result, 0, 0, 0xFFFF),
        (result, 0, 0, 0),
    )
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
