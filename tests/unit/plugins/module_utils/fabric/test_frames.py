# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.frames import (
    Hello,
    Received,
    decode,
    encode,
    filter_program,
)

HELLO = Hello("run1", "4cbb:4703:0001:0000", "spark-1.lan", "enP2p1s0f0np0", 0, 1)
MAC = "4c:bb:47:01:00:00"


def frame(
    body: bytes, ethertype: int = 0x88B5, magic: bytes = b"GB10RING", version: int = 1, length: int | None = None
) -> bytes:
    head = struct.pack("!H8sBH", ethertype, magic, version, len(body) if length is None else length)
    return b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) + head + body


def test_a_frame_says_what_its_sender_is() -> None:
    assert decode(encode(HELLO, MAC)) == Received(MAC, HELLO)


def test_padding_to_the_smallest_ethernet_frame_is_no_part_of_it() -> None:
    short = Hello("r", "m", "n", "e", 1, 0)
    assert decode(encode(short, MAC).ljust(60, b"\0")) == Received(MAC, short)


def test_a_frame_is_a_broadcast_of_the_local_experimental_ethertype() -> None:
    sent = encode(HELLO, MAC)
    assert sent[:6] == b"\xff" * 6
    assert sent[12:14] == bytes.fromhex("88b5")


GOOD = ["run1", "machine", "node", "netdev", 0, 1]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 1300,
        b"\xff\xfe",
        b"{}",
        json.dumps(GOOD[:5]).encode(),
        json.dumps([*GOOD, 1]).encode(),
        json.dumps([*GOOD[:4], 2, 0]).encode(),
        json.dumps([*GOOD[:4], True, 0]).encode(),
        json.dumps([*GOOD[:4], "0", 0]).encode(),
        json.dumps(["", *GOOD[1:]]).encode(),
        json.dumps(["run1", "machine", "evil\n\x1b[2J", "netdev", 0, 1]).encode(),
        json.dumps(["run1", "machine", "{{ lookup('pipe', 'id') }}", "netdev", 0, 1]).encode(),
        json.dumps(["run1", "machine", "n" * 129, "netdev", 0, 1]).encode(),
        json.dumps(["run1", None, "node", "netdev", 0, 1]).encode(),
    ],
)
def test_what_is_no_frame_of_the_probe_has_a_sender_only(body: bytes) -> None:
    assert decode(frame(body)) == Received(MAC, None)


@pytest.mark.parametrize(
    "data",
    [
        frame(json.dumps(GOOD).encode(), ethertype=0x88CC),
        frame(json.dumps(GOOD).encode(), magic=b"TOPODISC"),
        frame(json.dumps(GOOD).encode(), version=2),
        frame(json.dumps(GOOD).encode(), length=5),
        frame(json.dumps(GOOD).encode().ljust(9000)),
        frame(b"")[:20],
    ],
)
def test_other_frames_have_a_sender_only(data: bytes) -> None:
    assert decode(data) == Received(MAC, None)


def test_less_than_a_header_is_nothing() -> None:
    assert decode(b"\xff" * 13) is None


@pytest.mark.parametrize("change", [{"node": "two words"}, {"node": ""}, {"port": 2}, {"machine": "a" * 129}])
def test_what_a_receiver_would_refuse_is_not_sent(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not fit for a frame"):
        encode(replace(HELLO, **change), MAC)


def run_filter(program: bytes, packet: bytes) -> int:
    """The three instructions of classic BPF that the program uses."""
    lines = [struct.unpack_from("=HBBI", program, offset) for offset in range(0, len(program), 8)]
    at, accumulator = 0, 0
    while True:
        code, yes, no, value = lines[at]
        if code == 0x06:
            return int(value)
        if code == 0x30:
            accumulator = packet[value]
            at += 1
        else:
            assert code == 0x45
            at += 1 + (yes if accumulator & value else no)


@pytest.mark.parametrize(
    ("destination", "passes"),
    [("ff" * 6, True), ("0180c200000e", True), ("333300000001", True), ("4cbb47010000", False)],
)
def test_the_kernel_passes_groups_only(destination: str, passes: bool) -> None:
    packet = bytes.fromhex(destination) + encode(HELLO, MAC)[6:]
    assert bool(run_filter(filter_program(), packet)) is passes
