# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/verify with an ansible-playbook that writes the report which the test chose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "verify"

STAND_IN = """#!{python}
import json, sys
values = json.loads(sys.argv[sys.argv.index("-e") + 1])
report = {report!r}
if report:
    open(values["verify_report_path"], "w").write(report)
open({seen!r}, "w").write(json.dumps(sys.argv[1:]))
sys.exit({code})
"""


@pytest.fixture
def run(tmp_path):
    def call(result, code, *words):
        report = json.dumps({"created": "now", "result": result}) if result else ""
        program = tmp_path / "bin" / "ansible-playbook"
        program.parent.mkdir(exist_ok=True)
        text = STAND_IN.format(python=sys.executable, report=report, seen=str(tmp_path / "seen"), code=code)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        argv = [sys.executable, str(TOOL), "--report", str(tmp_path / "verify.json"), *words]
        env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)

    return call


@pytest.mark.parametrize(
    ("result", "code", "words", "status"),
    [
        ("ok", 0, (), 0),
        ("ok", 0, ("--warnings",), 0),
        ("warnings", 0, (), 0),
        ("warnings", 0, ("--warnings",), 2),
        ("failures", 2, (), 1),
        ("failures", 2, ("--warnings",), 1),
        ("ok", 4, (), 1),
        ("warnings", 2, ("--warnings",), 1),
    ],
)
def test_the_status_is_what_the_report_says(run, result, code, words, status):
    done = run(result, code, *words)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_run_without_a_report_is_a_failure_even_beside_an_older_report(run, tmp_path):
    (tmp_path / "verify.json").write_text('{"result": "ok"}', encoding="utf-8")
    done = run("", 0)
    assert done.returncode == 1
    assert "no report was written" in done.stderr


def test_a_report_that_cannot_be_read_is_none(run, tmp_path):
    """A directory in its place stands for a file of another user."""
    (tmp_path / "verify.json").mkdir()
    done = run("", 2)
    assert done.returncode == 1
    assert "no report was written" in done.stderr
    assert (tmp_path / "seen").exists()  # the playbook was run all the same


def test_other_arguments_are_handed_on(run, tmp_path):
    run("ok", 0, "-i", "ring.yml", "--tags", "fabric")
    seen = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
    assert seen[1:5] == ["-i", "ring.yml", "--tags", "fabric"]
    assert seen[0].endswith("playbooks/verify.yml")
