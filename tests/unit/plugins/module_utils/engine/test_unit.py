# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import (
    UnitSettings,
    assignment,
    command_line,
    hash_in_environ,
    hash_of,
    quote,
    render,
)

SETTINGS = UnitSettings(
    description="Engine, 100 %",
    argv=("/opt/x", "serve", '{"a": 1}'),
    env={"B": "2", "A": "1 2"},
    model_root="/srv/models/m",
    stop_timeout_s=30,
    limit_memlock="infinity",
    limit_nofile=1048576,
    oom_score_adjust=500,
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


def test_the_unit():
    text = render(SETTINGS, "digest")
    assert text.startswith("# Managed by gb10.ring")
    for line in (
        "Description=Engine, 100 %%",
        "After=network-online.target",
        "StartLimitIntervalSec=0",
        "Type=simple",
        "WorkingDirectory=/srv/models/m",
        'Environment="A=1 2"',
        "Environment=B=2",
        'ExecStart=/opt/x serve "{\\"a\\": 1}"',
        "Restart=on-failure",
        "RestartSec=10",
        "LimitMEMLOCK=infinity",
        "OOMScoreAdjust=500",
        "ReadOnlyPaths=/srv/models/m",
        "NoNewPrivileges=true",
        "ProtectHome=true",
        "PrivateTmp=true",
        "WantedBy=multi-user.target",
    ):
        assert line in text.splitlines(), line


@pytest.mark.parametrize(
    ("change", "identity", "same"),
    [
        ({}, "digest", True),
        ({}, "other config.json", False),
        ({"argv": ("/opt/x", "serve", "z")}, "digest", False),
        ({"env": {"B": "3"}}, "digest", False),
        ({"limit_memlock": "65536"}, "digest", False),
    ],
)
def test_the_hash_follows_all_that_matters(change, identity, same):
    first = hash_of(render(SETTINGS, "digest"))
    second = hash_of(render(UnitSettings(**{**SETTINGS.__dict__, **change}), identity))
    assert len(first) == 16
    assert (first == second) is same


@pytest.mark.parametrize("text", [None, "", "[Service]\nExecStart=/x\n", "Environment=GB10_RING_ENGINE_HASH=\n"])
def test_no_hash(text):
    assert hash_of(text) == ""


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
