# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
import stat

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.group_incident import (
    BYTES,
    KEPT,
    LINES,
    PIECE,
    PIECES,
    Gathered,
    Store,
    is_name,
    new_name,
    node_in,
    pack,
    tidy,
    together,
)

NAME = "20261130T055655108Z-3a5791"
LATER = "20261130T055655109Z-000000"


def test_names_sort_by_the_time_of_the_end():
    assert new_name(1796018215.1081, "3a5791ff") == NAME
    assert new_name(1796018215.109, "000000") == LATER > NAME
    assert is_name(NAME)


@pytest.mark.parametrize(
    ("other", "same"),
    [(LATER, True), ("20261130T055714999Z-000000", True), ("20261130T055716000Z-000000", False), ("x", False)],
)
def test_names_of_one_incident(other, same):
    assert together(NAME, other) is same
    assert together(other, NAME) is same


@pytest.mark.parametrize(
    "text", ["20269930T055655108Z-3a5791", "", "..", "../x", f"{NAME}/..", NAME.upper(), f"{NAME}\n"]
)
def test_what_is_no_name(text):
    assert not is_name(text)


@pytest.mark.parametrize(
    ("why", "node"),
    [
        ("spark10: its engine ended by itself: signal, status 9", "spark10"),
        ("spark2 was lost: not heard for 30 s, last running", "spark2"),
        ("no answer three times: timed out", ""),
        ("health: it hangs", ""),
        ("", ""),
    ],
)
def test_the_node_that_a_reason_begins_with(why, node):
    assert node_in(why, ["spark1", "spark10", "spark2"]) == node


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=..."),
        ("using hf_abcdefghijklmnop for it", "using hf_... for it"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ..."),
        ("'api_key': 'sk-0123456789'", "'api_key': '...'"),
        ("aws_secret_access_key=AbC/dEf+1", "aws_secret_access_key=..."),
        ("key AKIAIOSFODNN7EXAMPLE", "key AKIA..."),
        ("avg generation throughput: 17.3 tokens/s", "avg generation throughput: 17.3 tokens/s"),
        ("max_tokens=64 served", "max_tokens=64 served"),
    ],
)
def test_a_log_is_kept_without_secrets(line, kept):
    assert tidy([line]) == kept


def test_a_log_has_bounds():
    assert tidy([str(number) for number in range(LINES + 50)]).splitlines()[0] == "50"
    assert len(tidy(["x" * BYTES, "y" * 100]).encode()) == BYTES


@pytest.mark.parametrize("text", ["", "a line\n" * 1000, "ünlesbar " * 100])
def test_a_log_travels_whole_in_any_order(text):
    words = pack(NAME, text)
    assert all(len(word) <= PIECE + 40 for word in words)
    random.Random(1).shuffle(words)
    gathered = Gathered()
    results = [gathered.add(word) for word in [words[0], *words]]
    assert {result for result in results if result} == {(NAME, text)}


def test_a_log_that_does_not_compress_loses_its_beginning():
    noise = "".join(chr(33 + random.Random(number).randrange(90)) for number in range(BYTES * 3))
    words = pack(NAME, noise)
    assert len(words) <= PIECES
    gathered = Gathered()
    (whole,) = [result for word in words if (result := gathered.add(word))]
    assert noise.endswith(whole[1])


@pytest.mark.parametrize(
    "word", ["", "x 0 1 abc", f"{NAME} a 1 x", f"{NAME} 0 0 x", f"{NAME} 0 1 !!!", f"{NAME} 0 65 x"]
)
def test_words_without_sense_are_no_log(word):
    assert Gathered().add(word) is None


def test_a_log_of_another_incident_begins_anew():
    gathered = Gathered()
    text = "".join(chr(33 + random.Random(number).randrange(90)) for number in range(3000))
    first, second = pack(NAME, text), pack(LATER, text)
    assert len(first) > 1
    assert [gathered.add(word) for word in first[:-1]] == [None] * (len(first) - 1)
    assert [result for word in second if (result := gathered.add(word))] == [(LATER, text)]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_is_for_root_alone_and_keeps_the_last_ones(tmp_path):
    store = Store(str(tmp_path / "incidents"))
    names = [f"20261130T0556{number:02}000Z-00000{number % 10}" for number in range(KEPT + 2)]
    for name in names:
        store.open(name, {"node": "a", "why": "b"})
        store.add(name, "spark1", "log")
    assert sorted(path.name for path in store.root.iterdir()) == names[2:]
    assert store.logs(names[-1]) == ["spark1"]
    assert [mode(store.root), mode(store.root / names[-1]), mode(store.root / names[-1] / "spark1.log")] == [
        0o700,
        0o700,
        0o600,
    ]
    assert '"why": "b"' in (store.root / names[-1] / "incident.json").read_text()


def test_two_names_of_one_incident_become_one(tmp_path):
    store = Store(str(tmp_path))
    for name, node in ((NAME, "spark1"), (LATER, "spark2")):
        store.open(name, {"node": node})
        store.add(name, node, f"log of {node}\n")
    store.join(LATER, NAME)
    store.join("20000101T000000000Z-000000", NAME)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert store.logs(NAME) == ["spark1", "spark2"]
    store.open(NAME, {"node": "other"})
    assert '"spark1"' in (tmp_path / NAME / "incident.json").read_text()
