# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from itertools import count

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.guard_notice import (
    LIMIT,
    Listener,
    Teller,
    decode,
    encode,
    sign,
    signed,
    token_print,
)

TOKEN, OTHER = "t" * 48, "u" * 48
B = "192.0.2.12"


def numbers(prefix: str):
    serial = count()
    return lambda: f"{prefix}{next(serial)}"


class Pair:
    """A tells B; datagrams can be lost, by number."""

    def __init__(self, b_token: str = TOKEN, lost: tuple[int, ...] = ()) -> None:
        self.a, self.b = Teller("spark1", numbers("cookie")), Listener(numbers("nonce"))
        self.b_token, self.lost = b_token, lost
        self.sent = count()
        self.wire: list[dict[str, str]] = []
        self.heard: list[str] = []
        self.done = False

    def arrives(self, message: dict[str, str]) -> bool:
        self.wire.append(message)
        assert len(encode(message)) <= LIMIT
        return bool(message) and next(self.sent) not in self.lost

    def talk(self, now: float) -> None:
        for address, first in self.a.due(now, TOKEN):
            assert address == B
            message = first
            while message and self.arrives(message):
                reply, stop = self.b.hear(decode(encode(message)), self.b_token)
                self.heard += [stop] if stop else []
                if not reply or not self.arrives(reply):
                    break
                message, stopped = self.a.hear(B, decode(encode(reply)), TOKEN, now)
                self.done |= stopped


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 1, 2, 3)])
def test_a_stop_arrives_whatever_is_lost_on_the_way(lost):
    pair = Pair(lost=lost)
    pair.a.tell(B, "stop", "no memory", 0)
    for now in range(6):
        pair.talk(now)
    assert pair.done
    assert set(pair.heard) == {"spark1 says: no memory"}
    assert pair.a.words == {}
    assert B in pair.a.answered


def test_a_ping_is_answered_and_stops_nothing():
    pair = Pair()
    pair.a.tell(B, "ping", "", 0)
    pair.talk(0)
    assert pair.heard == []
    assert not pair.done
    assert pair.a.answered == {B: 0}


def test_a_stop_takes_the_place_of_a_ping_and_not_the_other_way_round():
    teller = Teller("spark1", numbers("c"))
    teller.tell(B, "ping", "", 0)
    teller.tell(B, "stop", "x", 1)
    teller.tell(B, "ping", "", 2)
    assert teller.words[B].kind == "stop"


@pytest.mark.parametrize("b_token", [OTHER, ""])
def test_without_the_same_token_nothing_is_heard(b_token):
    pair = Pair(b_token=b_token)
    pair.a.tell(B, "stop", "no memory", 0)
    for now in range(5):
        pair.talk(now)
    assert pair.heard == []
    assert not pair.done
    assert pair.a.answered == {}


def test_what_was_recorded_cannot_be_played_again():
    pair = Pair()
    pair.a.tell(B, "stop", "no memory", 0)
    pair.talk(0)
    recorded = [message for message in pair.wire if message.get("kind") == "stop"]
    assert len(recorded) == 1
    heard = pair.b.hear(recorded[0], TOKEN)
    assert heard.stop == ""
    assert heard.reply["kind"] == "nonce"


def test_what_was_signed_for_an_earlier_run_of_the_engine_does_not_count():
    listener = Listener(numbers("nonce"))
    said = {"kind": "stop", "cookie": "c", "nonce": "nonce0", "node": "spark1", "text": "why"}
    said["mac"] = sign(TOKEN, said)
    listener.renew()
    assert listener.hear(said, TOKEN).stop == ""


@pytest.mark.parametrize("field", ["kind", "cookie", "node", "text", "mac"])
def test_no_field_can_be_changed_on_the_way(field):
    listener = Listener(numbers("nonce"))
    said = {"kind": "ping", "cookie": "c", "nonce": "nonce0", "node": "spark1", "text": "why"}
    said["mac"] = sign(TOKEN, said)
    changed = {**said, field: "stop" if field == "kind" else "other"}
    assert listener.hear(changed, TOKEN) == ({}, "")
    assert listener.hear(said, TOKEN).reply["kind"] == "ack"


def test_an_answer_that_was_not_asked_for_or_not_signed_ends_nothing():
    teller = Teller("spark1", numbers("c"))
    teller.tell(B, "stop", "x", 0)
    for message in ({"kind": "ack", "cookie": "c0", "mac": "00"}, {"kind": "ack", "cookie": "other"}, {}):
        assert teller.hear(B, message, TOKEN, 0) == ({}, False)
    assert teller.hear("192.0.2.99", {"kind": "ack", "cookie": "c0"}, TOKEN, 0) == ({}, False)
    assert B in teller.words


def test_who_does_not_answer_is_told_twice_a_second_and_given_up_after_30_s():
    teller = Teller("spark1", numbers("c"))
    teller.tell(B, "stop", "x", 0)
    assert [len(teller.due(now / 4, TOKEN)) for now in range(6)] == [1, 0, 1, 0, 1, 0]
    assert teller.due(9, "") == []
    assert teller.given_up(30) == []
    assert teller.given_up(30.1) == [B]
    assert teller.words == {}


def test_a_ping_that_nobody_answers_is_given_up_in_silence():
    teller = Teller("spark1", numbers("c"))
    teller.tell(B, "ping", "", 0)
    assert teller.given_up(31) == []
    assert teller.words == {}


def test_a_group_that_was_started_anew_is_told_nothing():
    teller = Teller("spark1", numbers("c"))
    teller.tell(B, "stop", "x", 0)
    teller.forget()
    assert teller.due(1, TOKEN) == []


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"17", b'{"kind": 3}', '{"mac": "é"}'.encode()])
def test_other_datagrams_are_nothing(data):
    message = decode(data)
    assert message == {}
    assert Listener().hear(message, TOKEN) == ({}, "")
    assert not signed(TOKEN, message)


def test_long_reasons_fit():
    pair = Pair()
    pair.a.tell(B, "stop", "x" * 5000, 0)
    pair.talk(0)
    assert pair.done


def test_the_print_of_a_token_tells_tokens_apart_and_not_what_they_are():
    assert token_print(TOKEN) == token_print(TOKEN)
    assert token_print(TOKEN) != token_print(OTHER)
    assert token_print("") == ""
    assert TOKEN not in token_print(TOKEN)
