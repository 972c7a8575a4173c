# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import (
    assignment,
    command_line,
    command_lines,
    hash_in_environ,
    hash_of,
    quote,
)


# Each of these was read back unchanged from a unit of systemd 257.
@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("--headless", "--headless"),
        ("/a/b-1.2:3,4=5", "/a/b-1.2:3,4=5"),
        ("@x", "@x"),
        ("", '""'),
        ("a b", '"a b"'),
        ("$HOME ${X}", '"$$HOME $${X}"'),
        ("%h%%", "%%h%%%%"),
        (";", '";"'),
        ("#c", '"#c"'),
        ("'x'", "\"'x'\""),
        ('"y"', '"\\"y\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("tab\there", '"tab\\there"'),
        ("new\nline", '"new\\nline"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
        ("ünï", '"ünï"'),
    ],
)
def test_words_of_a_command_line(word, quoted):
    assert quote(word) == quoted


def test_an_assignment_keeps_the_dollar_and_doubles_the_percent():
    assert assignment("W", "p%h $Y \"q\" 'r' b\\s ;#") == r'''Environment="W=p%%h $Y \"q\" 'r' b\\s ;#"'''


def test_command_line():
    assert command_line(["/opt/x", "a b", "c"]) == '/opt/x "a b" c'


def test_a_long_command_has_a_row_a_line():
    assert command_lines([["/opt/x", "a"], ["--b", "c d"]]) == '/opt/x a \\\n  --b "c d"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, ""), ("", ""), ("no json", ""), ("[]", ""), ("{}", ""), ('{"hash": "00ff", "a": 1}', "00ff")],
)
def test_hash_of_a_record(text, expected):
    assert hash_of(text) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"A=1\0GB10_RING_ENGINE_HASH=00ff\0B=2\0", "00ff"),
        (b"XGB10_RING_ENGINE_HASH=00ff\0", ""),
        (b"", ""),
    ],
)
def test_hash_in_environ(environ, expected):
    assert hash_in_environ(environ) == expected
