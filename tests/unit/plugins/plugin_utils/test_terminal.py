# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading

import pytest

from ansible_collections.gb10.ring.plugins.plugin_utils import terminal


@pytest.mark.parametrize(
    ("choice", "is_terminal", "expected"),
    [("on", False, True), ("off", True, False), ("auto", True, True), ("auto", False, False)],
)
def test_who_asks_gets_lines(monkeypatch, choice, is_terminal, expected):
    monkeypatch.setattr(terminal, "_is_terminal", lambda: is_terminal)
    assert terminal.wanted(choice) is expected


@pytest.mark.parametrize(
    ("target", "expected"), [("/dev/pts/3", True), ("/dev/tty1", True), ("/dev/null", False), ("pipe:[1]", False)]
)
def test_what_a_terminal_is(tmp_path, target, expected):
    (tmp_path / "1").symlink_to(target)
    assert terminal._leads_to_terminal(str(tmp_path / "1")) is expected
    assert not terminal._leads_to_terminal(str(tmp_path / "2"))


def test_equal_lines_are_shown_once(monkeypatch):
    monkeypatch.setattr(terminal, "PACE", 0.001)
    texts, shown, ended = ["a", "a", "b"], [], threading.Event()

    def text():
        if len(texts) == 1:
            ended.set()
        return texts[0] if len(texts) == 1 else texts.pop(0)

    with terminal.lines(text, shown.append):
        assert ended.wait(10)
        threading.Event().wait(0.05)
    assert shown == ["a", "b"]


def test_nobody_looking_sees_nothing():
    before = threading.active_count()
    with terminal.lines(lambda: "a", None):
        assert threading.active_count() == before
