# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import threading
import time

import pytest

from lab.engine.standin import load
from lab.engine.standin.answers import answer


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("GB10_LAB_ENGINE_LOAD", str(tmp_path / "load"))
    return tmp_path / "load"


def metrics(generated):
    found = {}
    for line in load.metrics("m", generated).splitlines():
        found[line.partition("{")[0]] = float(line.rpartition(" ")[2])
    return found


def test_a_request_waits_while_its_word_is_there(file):
    file.write_text("stuck\n")
    began = time.monotonic()
    load.wait(load.HANGS)
    assert time.monotonic() - began < 0.09
    threading.Timer(0.3, file.unlink).start()
    load.wait(load.WORKING, load.STUCK)
    assert 0.25 < time.monotonic() - began < 2


def test_metrics_without_load(file):
    assert metrics(7) == {
        "vllm:generation_tokens_total": 7.0,
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 0.0,
    }


@pytest.mark.parametrize(("word", "grows"), [("working", True), ("stuck", False)])
def test_metrics_under_load(file, word, grows):
    file.write_text(word)
    first = metrics(7)
    time.sleep(0.05)
    second = metrics(7)
    assert first["vllm:num_requests_running"] == 1.0
    assert (second["vllm:generation_tokens_total"] > first["vllm:generation_tokens_total"]) is grows


def test_sums_that_are_wrong_on_demand(monkeypatch):
    assert answer("What is 17*19?") == "323"
    monkeypatch.setenv("GB10_LAB_WRONG_SUMS", "1")
    assert answer("What is 17*19?") == "17"
