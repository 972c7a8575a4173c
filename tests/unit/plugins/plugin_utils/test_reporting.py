# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.document import Report
from ansible_collections.gb10.ring.plugins.plugin_utils.reporting import Forms, benchmark, write

BAD = Check("fabric.mtu", "spark2", False, "1500 bytes", "9000 bytes", "run the fabric role").to_dict()

BENCH = {"created": "2026-11-29T20:00:00+00:00", "profile": "lab"}
ROW = {"kind": "decode", "tokens": 1000, "concurrency": 1, "median": None, "unit": "tok/s"}


def report(day, *checks):
    return Report("verify", f"2026-11-{day:02d}T03:00:00+00:00", list(checks))


def test_every_form_that_is_asked_for(tmp_path):
    forms = Forms(*(tmp_path / "new" / name for name in ("v.json", "v.html", "v.xml", "history")))
    write(report(1, BAD), forms)
    assert json.loads((tmp_path / "new" / "v.json").read_text())["result"] == "failures"
    assert "What to do" in (tmp_path / "new" / "v.html").read_text()
    assert 'failures="1"' in (tmp_path / "new" / "v.xml").read_text()
    assert [path.name for path in (tmp_path / "new" / "history").iterdir()] == ["verify-20261101T030000Z.json"]
    write(report(2), Forms(json=tmp_path / "only.json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "only.json"]


def test_the_page_shows_earlier_reports_and_the_oldest_go(tmp_path):
    forms = Forms(html=tmp_path / "v.html", history=tmp_path / "history", keep=3)
    for day in (1, 2, 3, 4, 5):
        write(report(day, *([BAD] if day == 4 else [])), forms)
    (tmp_path / "history" / "verify-20261105T040000Z.json").write_text("{")
    (tmp_path / "history" / "notes.txt").write_text("mine")
    write(report(6), replace(forms, keep=4))
    assert sorted(path.name for path in (tmp_path / "history").iterdir()) == [
        "notes.txt",
        "verify-20261104T030000Z.json",
        "verify-20261105T030000Z.json",
        "verify-20261105T040000Z.json",
        "verify-20261106T030000Z.json",
    ]
    page = (tmp_path / "v.html").read_text()
    assert [f"2026-11-0{day} 03:00 UTC" in page for day in range(1, 7)] == [False, False, True, True, True, True]
    assert "The same checks hold" in page


def test_a_report_of_another_title_is_no_history(tmp_path):
    forms = Forms(html=tmp_path / "v.html", history=tmp_path)
    write(report(1), forms)
    write(replace(report(2), title="fabric"), forms)
    assert "This is the first report that is kept." in (tmp_path / "v.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "no created, profile and rows"),
        ('{"rows": []}', "no created, profile and rows"),
        (json.dumps(BENCH | {"created": 7, "rows": []}), "created is no text"),
        (json.dumps(BENCH | {"rows": [ROW, 1]}), r"rows\[1\]: no measurement"),
        (json.dumps(BENCH | {"rows": [{}]}), r"rows\[0\]: kind, tokens, concurrency, unit, median missing or wrong"),
        (json.dumps(BENCH | {"rows": [ROW | {"tokens": "many"}]}), "tokens missing or wrong"),
        (json.dumps(BENCH | {"rows": [ROW | {"published": "fast"}]}), "published missing or wrong"),
        (json.dumps(BENCH | {"rows": [ROW | {"low": 1.0}]}), "low and high missing or wrong"),
    ],
)
def test_a_benchmark_that_is_none_is_named(tmp_path, text, message):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with pytest.raises(HostError, match=message) as caught:
        benchmark(path)
    assert str(path) in str(caught.value)
    assert "run bench.yml again" in str(caught.value)


def test_a_benchmark_is_read_when_it_is_there(tmp_path):
    path = tmp_path / "bench.json"
    assert benchmark(None) is None
    assert benchmark(path) is None
    for rows in ([], [ROW], [ROW | {"median": 81.2, "low": 80, "high": 83.5, "published": 85}]):
        held = {**BENCH, "rows": rows}
        path.write_text(json.dumps(held))
        assert benchmark(path) == held
        write(replace(report(1), benchmark=held), Forms(html=tmp_path / "v.html"))  # it can be shown


def test_what_cannot_be_written_takes_nothing_from_the_rest(tmp_path):
    (tmp_path / "file").write_text("")
    forms = Forms(tmp_path / "file" / "v.json", tmp_path / "v.html", tmp_path / "file" / "v.xml", tmp_path / "history")
    done = write(report(1, BAD), forms)
    assert done.files == (tmp_path / "v.html",)
    assert [problem.partition(": ")[0] for problem in done.problems] == [
        f"cannot write {tmp_path / 'file' / name}" for name in ("v.json", "v.xml")
    ]
    assert len(list((tmp_path / "history").iterdir())) == 1


@pytest.mark.parametrize("make", [lambda path: path.write_text(""), lambda path: path.mkdir(mode=0)])
def test_a_history_that_cannot_be_used_leaves_the_page(tmp_path, monkeypatch, make):
    history = tmp_path / "history"
    make(history)
    if history.is_dir():  # as it is for another user than root

        def refused(path):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(type(history), "iterdir", refused)
    done = write(report(1, BAD), Forms(json=tmp_path / "v.json", html=tmp_path / "v.html", history=history))
    assert done.files == (tmp_path / "v.json", tmp_path / "v.html")
    assert len(done.problems) == 1
    assert str(history) in done.problems[0]
