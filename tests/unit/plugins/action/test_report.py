# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible import constants
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.action import report
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check

GOOD = Check("fabric.mtu", "spark1", True, "9000 bytes", "9000 bytes").to_dict()
BAD = Check("fabric.mtu", "spark2", False, "1500 bytes", "9000 bytes", "run the fabric role").to_dict()
WARNING = {**BAD, "id": "memory.sysctl", "severity": "warning"}
NOTE = {**BAD, "id": "fabric.flaps", "severity": "info"}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The action in a directory of its own; shown: what it printed."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    shown = []
    monkeypatch.setattr(Display, "display", lambda self, text, *rest, **more: shown.append(text))

    def call(checks, check_mode=False, **arguments):
        arguments = {"title": "verify", "checks": checks, **arguments}
        task = SimpleNamespace(args=arguments, async_val=0, check_mode=check_mode, diff=False, action="x", _uuid="1")
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        loader = SimpleNamespace(path_dwim=lambda text: str(tmp_path / text))
        return report.ActionModule(task, connection, None, loader, None, None).run(None, {})

    call.shown = shown
    return call


@pytest.mark.parametrize(
    ("checks", "warnings", "result", "failed"),
    [
        ([GOOD], "warn", "ok", False),
        ([GOOD], "fail", "ok", False),
        ([GOOD, NOTE], "fail", "ok", False),
        ([GOOD, WARNING], "warn", "warnings", False),
        ([GOOD, WARNING], "fail", "warnings", True),
        ([BAD, WARNING], "warn", "failures", True),
        ([BAD], "fail", "failures", True),
    ],
)
def test_what_fails_the_task(run, checks, warnings, result, failed):
    done = run(checks, warnings=warnings)
    assert (done["result"], bool(done.get("failed"))) == (result, failed)
    assert not done["changed"]
    assert bool(done.get("warnings")) is (result == "warnings" and not failed)
    for check in checks:
        assert (check["ok"]) or (f"{check['node']}: {check['id']}" in done["msg"])


def test_the_worst_is_first_and_the_cure_beside_it(run):
    lines = run([WARNING, GOOD, BAD])["msg"].splitlines()
    assert lines[0] == "verify: 2 of 3 checks failed"
    assert lines[1] == ("- spark2: fabric.mtu error: found 1500 bytes, expected 9000 bytes. Cure: run the fabric role")
    assert lines[2].startswith("- spark2: memory.sysctl warning")


def test_files_are_written_and_named(run, tmp_path):
    site = {"shape": "", "mtu": 0, "legs": [], "nodes": [], "versions": []}
    paths = {"path": "r/v.json", "html_path": "v.html", "junit_path": "v.xml", "history_path": "history"}
    done = run([GOOD], site=site, **paths)
    assert done["written"] == [str(tmp_path / name) for name in ("r/v.json", "v.html", "v.xml")]
    assert json.loads((tmp_path / "r/v.json").read_text())["counts"]["held"] == 1
    assert len(list((tmp_path / "history").iterdir())) == 1
    assert run.shown[-1].splitlines() == [
        "verify: all 1 checks hold",
        *(f"written: {path}" for path in done["written"]),
    ]


def test_check_mode_writes_nothing(run, tmp_path):
    done = run([BAD], check_mode=True, path="v.json", html_path="v.html", history_path="history")
    assert done["failed"]
    assert done["written"] == []
    assert list(tmp_path.iterdir()) == []


def test_rows_are_printed(run):
    run([GOOD], rows=[{"node": "spark1", "engine": "healthy"}])
    assert run.shown == ["\nnode    engine\nspark1  healthy\n"]


@pytest.mark.parametrize(
    ("checks", "first"), [([GOOD], "verify: all 1 checks hold"), ([BAD, GOOD], "verify: 1 of 2 checks failed")]
)
def test_a_file_that_cannot_be_written_fails_and_hides_nothing(run, tmp_path, checks, first):
    (tmp_path / "file").write_text("")
    done = run(checks, path="file/v.json", html_path="v.html", rows=[{"node": "spark1", "engine": "healthy"}])
    lines = done["msg"].splitlines()
    assert done["failed"]
    assert lines[0] == first
    assert all(f"{check['node']}: {check['id']}" in done["msg"] for check in checks if not check["ok"])
    assert lines[-1].startswith(f"report verify: cannot write {tmp_path / 'file' / 'v.json'}: ")
    assert done["written"] == [str(tmp_path / "v.html")]
    assert done["problems"] == [lines[-1].removeprefix("report verify: ")]
    assert run.shown[0] == "\nnode    engine\nspark1  healthy\n"


def test_the_last_benchmark_is_part_of_the_report(run, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps({"created": "x", "profile": "lab", "rows": []}))
    run([GOOD], path="v.json", benchmark_path="bench.json")
    assert json.loads((tmp_path / "v.json").read_text())["benchmark"]["profile"] == "lab"


@pytest.mark.parametrize("text", ["{", "[]", '{"created": "x", "profile": "lab", "rows": [{}]}'])
@pytest.mark.parametrize("checks", [[GOOD], [BAD, GOOD]])
def test_a_benchmark_that_is_none_fails_and_hides_nothing(run, tmp_path, text, checks):
    (tmp_path / "bench.json").write_text(text)
    done = run(checks, path="v.json", html_path="v.html", benchmark_path="bench.json")
    lines = done["msg"].splitlines()
    assert done["failed"]
    assert lines[0].startswith("verify: ")
    assert all(f"{check['node']}: {check['id']}" in done["msg"] for check in checks if not check["ok"])
    assert lines[-1].startswith(f"report verify: {tmp_path / 'bench.json'} is no benchmark (")
    assert done["written"] == [str(tmp_path / name) for name in ("v.json", "v.html")]
    assert json.loads((tmp_path / "v.json").read_text())["benchmark"] is None
