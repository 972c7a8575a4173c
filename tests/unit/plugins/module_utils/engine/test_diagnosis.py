# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each known signature has a log in fixtures/engine/logs, whose first line says where it is from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.diagnosis import (
    TABLE,
    describe,
    diagnose,
    last_lines,
    last_run,
)

LOGS = Path(__file__).parents[3] / "fixtures" / "engine" / "logs"
HEALTHY = sorted((LOGS / "healthy").glob("*.log"))
IDS = [signature.id for signature in TABLE]
START = "Starting gb10-ring-engine.service - Inference engine lab, rank 1 of 3 (gb10.ring)..."
STAMP = "2026-11-30T05:12:01+00:00 spark2 systemd[1]: "
STARTED = START.replace("Starting", "Started")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()[1:]


def test_every_signature_has_a_log_and_every_log_a_signature():
    assert sorted(path.stem for path in LOGS.glob("*.log")) == sorted(IDS)
    assert len(set(IDS)) == len(IDS)
    assert HEALTHY


@pytest.mark.parametrize("path", [*sorted(LOGS.glob("*.log")), *HEALTHY], ids=lambda path: path.stem)
def test_every_log_says_where_it_is_from(path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"# (recorded|reconstructed): \S.{10,}", first), first


@pytest.mark.parametrize("signature", TABLE, ids=IDS)
def test_a_log_is_diagnosed_as_its_own_cause(signature):
    found = diagnose({"spark2": lines(LOGS / f"{signature.id}.log")})
    assert found[0].signature == signature.id, found
    assert found[0].node == "spark2"
    assert re.search(signature.pattern, found[0].line)
    assert (found[0].meaning, found[0].cure) == (signature.means, signature.cure)


@pytest.mark.parametrize("signature", TABLE, ids=IDS)
def test_a_signature_says_what_to_do_and_where_it_is_from(signature):
    assert signature.means and len(signature.cure) > 20 and signature.source
    assert re.compile(signature.pattern).groups >= 0


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_nothing_is_found_in_a_healthy_log(path):
    assert diagnose({"spark1": lines(path)}) == []


def test_a_link_that_came_up_later_is_no_cause():
    waited = (
        "engine-gid: rocep1s0f0 has no RoCE v2 GID for 198.19.2.2. Expected the address; looked for again for 900 s"
    )
    assert diagnose({"spark1": [waited, "engine-gid: rocep1s0f0 index 3"]}) == []
    gave_up = waited.partition(";")[0]
    assert [finding.signature for finding in diagnose({"spark1": [waited, gave_up]})] == ["gid-missing"]


def test_the_cause_comes_before_what_only_follows_from_it():
    tails = {
        "spark1": lines(LOGS / "peer-gone.log") + lines(LOGS / "engine-dead.log")[-1:],
        "spark2": lines(LOGS / "killed.log"),
        "spark3": lines(LOGS / "nccl-memory-registration.log"),
    }
    found = diagnose(tails)
    assert [(finding.node, finding.signature) for finding in found] == [
        ("spark3", "nccl-memory-registration"),
        ("spark3", "nccl-system-error"),
        ("spark2", "killed"),
        ("spark3", "worker-ended"),
        ("spark1", "peer-gone"),
        ("spark1", "engine-dead"),
    ]
    said = describe(found, tails).splitlines()
    assert said[0].startswith("spark3: memory cannot be registered for RDMA (nccl-memory-registration): spark2:412:640")
    assert "Cure: run preflight" in said[0]
    assert said[1].startswith("    also spark3: ")


def test_an_unknown_failure_shows_the_last_lines_of_every_rank():
    tails = {"spark1": [f"line {number}" for number in range(30)], "spark2": []}
    found = diagnose(tails)
    assert found == []
    said = describe(found, tails, lines=2).splitlines()
    assert said == [
        "no known cause in the logs. Their last lines:",
        "  spark1:",
        "    line 28",
        "    line 29",
        "  spark2:",
        "    (no lines)",
    ]


@pytest.mark.parametrize(
    ("tail", "run"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", START, "gid", STARTED, "b"], [START, "gid", STARTED, "b"]),
        ([START, STARTED, "a", START, STARTED, "b"], [START, STARTED, "b"]),
        (["a", STARTED, "b", STARTED, "c"], [STARTED, "c"]),
        (["a", f"{STAMP}{START}", "b"], [f"{STAMP}{START}", "b"]),
    ],
)
def test_the_last_run(tail, run):
    assert last_run(tail) == run


def test_the_run_before_counts_only_when_the_last_one_shows_nothing():
    old, new = "CUDA out of memory", "EngineDeadError"
    tail = [START, STARTED, old, START, STARTED, new]
    assert [finding.signature for finding in diagnose({"a": tail})] == ["engine-dead"]
    assert [finding.signature for finding in diagnose({"a": tail[:-1]})] == ["gpu-out-of-memory"]


def test_a_long_line_is_cut():
    [finding] = diagnose({"a": ["CUDA out of memory " + "x" * 1000]})
    assert len(finding.line) == 300


def test_last_lines_of_nobody():
    assert last_lines({}) == []


@pytest.mark.parametrize("signature", TABLE, ids=IDS)
def test_a_signature_is_in_the_documentation(signature):
    page = (Path(__file__).parents[5] / "docs" / "engine-failures.md").read_text(encoding="utf-8")
    assert f"| `{signature.id}` | {signature.means} | {signature.cure} | {signature.source} |" in page
