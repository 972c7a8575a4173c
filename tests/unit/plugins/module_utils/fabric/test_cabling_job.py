# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_job
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_work_goes_on_until_its_result_is_wanted(tmp_path: Path) -> None:
    def work(wanted: Any) -> dict[str, Any]:
        end = time.monotonic() + 10
        while wanted() is None and time.monotonic() < end:
            time.sleep(0.01)
        return {"wanted": wanted(), "pid": os.getpid(), "session": os.getsid(0)}

    cabling_job.start("run1", work, tmp_path)
    time.sleep(0.2)
    assert left(tmp_path) == ["run1.json"]
    result = cabling_job.collect("run1", 10, tmp_path, since=1.5)
    assert result["wanted"] == 1.5
    assert result["pid"] != os.getpid()
    assert result["session"] != os.getsid(0)
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [HostError("no raw socket"), ValueError("no raw socket")])
def test_an_error_of_the_work_is_told_by_collect(tmp_path: Path, error: Exception) -> None:
    def work(wanted: Any) -> dict[str, Any]:
        raise error

    cabling_job.start("run1", work, tmp_path)
    with pytest.raises(HostError, match="no raw socket"):
        cabling_job.collect("run1", 10, tmp_path)
    assert left(tmp_path) == []


def test_a_process_that_was_ended_is_told_at_once(tmp_path: Path) -> None:
    cabling_job.start("run1", lambda wanted: os._exit(9), tmp_path)
    began = time.monotonic()
    with pytest.raises(HostError, match=r"was ended \(process \d+\)"):
        cabling_job.collect("run1", 30, tmp_path)
    assert time.monotonic() - began < 10
    assert left(tmp_path) == []


def test_a_process_that_does_not_end_is_a_timeout_with_its_id(tmp_path: Path) -> None:
    (tmp_path / "run1.json").write_text(json.dumps({"pid": os.getpid()}), encoding="utf-8")
    ticks = iter(range(100))
    with pytest.raises(HostError, match=f"not ended within 5 s .process {os.getpid()}"):
        cabling_job.collect("run1", 5, tmp_path, clock=lambda: next(ticks), sleep=lambda seconds: None)


def test_collecting_what_was_not_started(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no probe was started here"):
        cabling_job.collect("run1", 5, tmp_path)
    assert left(tmp_path) == []


def test_a_run_is_started_once(tmp_path: Path) -> None:
    (tmp_path / "run1.json").write_text("{}", encoding="utf-8")
    with pytest.raises(HostError, match="exists already"):
        cabling_job.start("run1", lambda wanted: {}, tmp_path)


def test_what_nobody_collected_is_removed_by_the_next_start(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    for path in (old, new):
        path.write_text("{}", encoding="utf-8")
    os.utime(old, (0, 0))
    cabling_job.start("run1", lambda wanted: {"done": True}, tmp_path)
    assert cabling_job.collect("run1", 10, tmp_path) == {"done": True}
    assert left(tmp_path) == ["new.json"]
