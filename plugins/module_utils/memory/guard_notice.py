# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How services of ours tell each other something, such as that the group is to stop: four datagrams, and what each proves; pure.

    A -> B  hello {cookie}                                  anybody may ask
    B -> A  nonce {cookie, nonce}                           the nonce is good once
    A -> B  word {cookie, nonce, node, text, mac}           A knows the token, and says it now; its kind is stop or ping between guards
    B -> A  ack {cookie, mac}                               B knows the token, and has heard it

A lost datagram costs one repetition. What is recorded cannot be played again: the nonce changes when a word is taken, and when
the engine of B starts anew. A copy of this file runs on the nodes without Ansible: standard library only.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

HELLO, NONCE, STOP, PING, ACK = "hello", "nonce", "stop", "ping", "ack"
LIMIT = 1024  # bytes of a datagram
TEXT_LIMIT = 400
REPEAT_S = 0.5
GIVE_UP_S = 30.0  # after that a neighbour may have been started anew, for a good reason

Message = dict[str, str]


def sign(token: str, message: Mapping[str, str]) -> str:
    """The proof that the sender of these fields knows the token."""
    text = json.dumps({key: value for key, value in message.items() if key != "mac"}, sort_keys=True)
    return hmac.digest(token.encode(), text.encode(), "sha256").hex()


def signed(token: str, message: Mapping[str, str]) -> bool:
    return bool(token) and hmac.compare_digest(sign(token, message), message.get("mac", ""))


def encode(message: Mapping[str, str]) -> bytes:
    return json.dumps(message).encode()


def decode(data: bytes) -> Message:
    """The fields of a datagram; without any when it is none of ours."""
    try:
        message = json.loads(data)
    except ValueError:
        return {}
    if not isinstance(message, dict) or not all(isinstance(value, str) for value in message.values()):
        return {}
    return message if message.get("mac", "").isascii() else {}


def fresh() -> str:
    return os.urandom(12).hex()


class Heard(NamedTuple):
    """What a datagram comes to. reply: to be sent back, empty for nothing. stop: who wants the engine stopped, and why."""

    reply: Message
    stop: str = ""


class Taken(NamedTuple):
    """What a datagram comes to. reply: to be sent back, empty for nothing. kind: of the word that was proved, empty for none."""

    reply: Message
    kind: str = ""
    text: str = ""


class Listener:
    """The side that is told. kinds: of the words that it takes."""

    def __init__(self, random: Callable[[], str] = fresh, kinds: tuple[str, ...] = (STOP, PING)) -> None:
        self._random = random
        self._kinds = kinds
        self._nonce = random()

    def renew(self) -> None:
        """What was signed for the run before does not count for this one."""
        self._nonce = self._random()

    def hear(self, message: Mapping[str, str], token: str) -> Heard:
        taken = self.take(message, token)
        return Heard(taken.reply, f"{message.get('node', '')} says: {taken.text}" if taken.kind == STOP else "")

    def take(self, message: Mapping[str, str], token: str) -> Taken:
        kind, cookie = message.get("kind", ""), message.get("cookie", "")[:64]
        if not token or kind not in (HELLO, *self._kinds):
            return Taken({})
        if kind == HELLO or message.get("nonce") != self._nonce:
            return Taken({"kind": NONCE, "cookie": cookie, "nonce": self._nonce})
        if not signed(token, message):
            return Taken({})
        self.renew()
        ack = {"kind": ACK, "cookie": cookie}
        return Taken({**ack, "mac": sign(token, ack)}, kind, message.get("text", ""))


class Word(NamedTuple):
    """Something one neighbour is to be told. since, sent: when it was first and last tried."""

    kind: str
    text: str
    cookie: str
    since: float
    sent: float = float("-inf")
    nonce: str = ""


class Teller:
    """The side that tells. Neighbours are named by their address. limit: characters of a word."""

    def __init__(self, node: str, random: Callable[[], str] = fresh, limit: int = TEXT_LIMIT) -> None:
        self._node = node
        self._random = random
        self._limit = limit
        self.words: dict[str, Word] = {}
        self.answered: dict[str, float] = {}

    def tell(self, address: str, kind: str, text: str, now: float) -> None:
        """A stop takes the place of a ping, never the other way round."""
        held = self.words.get(address)
        if held is None or kind == STOP:
            self.words[address] = Word(kind, text[: self._limit], self._random(), now)

    def refresh(self, address: str, kind: str, text: str) -> None:
        """Say it as it is now, where a word of this kind has not been taken yet."""
        held = self.words.get(address)
        if held is not None and held.kind == kind:
            self.words[address] = held._replace(text=text[: self._limit])

    def forget(self) -> None:
        """Tell nobody anything any more: the group has been started anew."""
        self.words.clear()

    def due(self, now: float, token: str) -> list[tuple[str, Message]]:
        """What is to be sent now."""
        due = []
        for address, word in self.words.items():
            if token and now - word.sent >= REPEAT_S:
                self.words[address] = word._replace(sent=now)
                due.append((address, self._message(word, token)))
        return due

    def given_up(self, now: float) -> list[str]:
        """Addresses that have not answered in time, and are told no longer."""
        late = [address for address, word in self.words.items() if now - word.since > GIVE_UP_S]
        return [address for address in late if self.words.pop(address).kind == STOP]

    def hear(self, address: str, message: Mapping[str, str], token: str, now: float) -> tuple[Message, bool]:
        """A reply to send, and whether this neighbour has now heard a stop."""
        word = self.words.get(address)
        if word is None or message.get("cookie") != word.cookie:
            return {}, False
        if message.get("kind") == NONCE and message.get("nonce") != word.nonce:
            word = word._replace(nonce=message.get("nonce", "")[:64], sent=now)
            self.words[address] = word
            return self._message(word, token), False
        if message.get("kind") == ACK and signed(token, message):
            del self.words[address]
            self.answered[address] = now
            return {}, word.kind == STOP
        return {}, False

    def _message(self, word: Word, token: str) -> Message:
        if not word.nonce:
            return {"kind": HELLO, "cookie": word.cookie}
        said = {"kind": word.kind, "cookie": word.cookie, "nonce": word.nonce, "node": self._node, "text": word.text}
        return {**said, "mac": sign(token, said)}


def token_print(token: str) -> str:
    """What may be shown of a token: enough to see whether two nodes have the same."""
    return hmac.digest(b"gb10-ring-guard", token.encode(), "sha256").hex()[:16] if token else ""
