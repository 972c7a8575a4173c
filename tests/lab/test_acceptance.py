# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A serving group on the lab is asked what is known, measured, and its nodes sum over gloo; faults planted in the engine are found.

Runs inside the controller namespace of a freshly booted lab of three (`make acceptance-test`, which also gives the nodes a torch).
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from site_run import NODES, on, play

FAULTS = "/run/gb10-lab/engine-faults"
REFERENCE = "/var/lib/gb10-ring/acceptance.json"
LIBRARIES = "/opt/gb10-lab/torch/usr/lib"
# With a vision tower, which the lab's profile leaves out as the published ring does.
SEEING = {"engine_overrides": {"sees": True, "options": {"language-model-only": None}}}
ENGINE = {**SEEING, "verify_roles": ["engine"], "engine_acceptance": True, "engine_acceptance_needles": [500, 8000]}
ALLREDUCE = {
    "verify_roles": ["fabric"],
    "fabric_verify_cabling": False,
    "fabric_allreduce": True,
    "fabric_allreduce_backend": "gloo",
    "fabric_allreduce_sizes": [1048576, 8388608],
    "fabric_allreduce_timeout": 90,
    # one machine sums for three nodes over a bridge: any figure above this is the program's, not a fabric's
    "fabric_allreduce_warn_below": 0.02,
    "fabric_allreduce_fail_below": 0.01,
    "fabric_allreduce_command": [
        "env",
        f"LD_LIBRARY_PATH={LIBRARIES}:{LIBRARIES}/x86_64-linux-gnu:{LIBRARIES}/x86_64-linux-gnu/blas:{LIBRARIES}/x86_64-linux-gnu/lapack",
        f"PYTHONPATH={LIBRARIES}/python3/dist-packages",
        "python3",
    ],
}


def verify(folder: Path, **variables: Any) -> dict[str, Any]:
    """The report of verify.yml."""
    paths = {"verify_report_path": str(folder / "verify.json"), "verify_html_path": "", "verify_history_path": ""}
    (folder / "verify.json").unlink(missing_ok=True)
    _code, output = play("-e", json.dumps({**paths, **variables}), playbook="verify.yml")
    assert (folder / "verify.json").exists(), output
    report: dict[str, Any] = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    return report


def failed(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (check["node"], check["id"]) for check in report["checks"] if not check["ok"] and check["severity"] != "info"
    }


@pytest.fixture(scope="module", autouse=True)
def site() -> None:
    code, output = play("-e", json.dumps(SEEING))
    assert code == 0, output


def test_a_healthy_group_answers_everything(tmp_path):
    recorded = verify(tmp_path, **ENGINE, engine_acceptance_reference=REFERENCE, engine_acceptance_record=True)
    assert failed(recorded) == set()
    report = verify(tmp_path, **ENGINE, engine_acceptance_reference=REFERENCE)
    assert failed(report) == set()
    asked = {check["id"]: check for check in report["checks"] if check["id"].startswith("engine.acceptance_")}
    names = {name.removeprefix("engine.acceptance_") for name in asked}
    assert names >= {"health", "models", "arithmetic", "count", "logprobs", "reasoning", "tools", "nonce", "streams"}
    assert names >= {"needle_500", "needle_8000", "image", "parity"}
    assert all(check["node"] == "spark1" and check["asked"] and check["answered"] for check in asked.values())
    assert asked["engine.acceptance_parity"]["answered"].startswith("5 of 5 identical, ")


def test_a_model_that_thinks_by_default_answers_everything_too(tmp_path):
    on("spark1", f"mkdir -p /run/gb10-lab; echo thinks >{FAULTS}")
    try:
        report = verify(tmp_path, **ENGINE)
        overrides = {**ENGINE["engine_overrides"], "thinking": {"disable": None}}
        unknown = verify(tmp_path, **{**ENGINE, "engine_overrides": overrides})
    finally:
        on("spark1", f"rm -f {FAULTS}")
    assert failed(report) == set()
    asked = {check["id"]: check for check in report["checks"]}
    assert asked["engine.chat"]["ok"]
    assert "reasoning 'I look at what is asked" in asked["engine.acceptance_reasoning"]["answered"]
    assert ("spark1", "engine.acceptance_arithmetic") in failed(unknown), "the questions would have been cut"


@pytest.mark.parametrize(
    ("fault", "finds"),
    [
        ("nan-logprobs", "logprobs"),
        ("mixed-streams", "streams"),
        ("wrong-sums", "arithmetic"),
        ("colour-blind", "image"),
    ],
)
def test_a_fault_of_the_engine_is_found_and_nothing_else(tmp_path, fault, finds):
    on("spark1", f"mkdir -p /run/gb10-lab; echo {fault} >{FAULTS}")
    try:
        report = verify(tmp_path, **ENGINE, engine_probe=False)
    finally:
        on("spark1", f"rm -f {FAULTS}")
    assert failed(report) == {("spark1", f"engine.acceptance_{finds}")}, [
        check for check in report["checks"] if not check["ok"]
    ]
    check = next(check for check in report["checks"] if check["id"] == f"engine.acceptance_{finds}")
    assert check["cure"]


def test_the_benchmark_leaves_its_figures(tmp_path):
    variables = {
        "engine_benchmark_path": str(tmp_path / "made" / "bench"),
        "engine_benchmark_prefill": [500, 4000],
        "engine_benchmark_decode_tokens": 60,
        "engine_benchmark_repeats": 2,
    }
    code, output = play("-e", json.dumps(variables), playbook="bench.yml")
    assert code == 0, output
    document = json.loads((tmp_path / "made" / "bench.json").read_text(encoding="utf-8"))
    assert (document["profile"], document["client"]) == ("lab", "spark3")
    assert len(document["conditions"]["engine_argv"]) > 10
    assert document["conditions"]["thinking"] == "off"
    assert all(row["median"] > 0 for row in document["rows"])
    rows = list(csv.DictReader((tmp_path / "made" / "bench.csv").open(encoding="utf-8")))
    assert [(row["kind"], row["concurrency"]) for row in rows] == [
        (row["kind"], str(row["concurrency"])) for row in document["rows"]
    ]
    report = verify(tmp_path, verify_roles=["engine"], verify_benchmark_path=str(tmp_path / "made" / "bench.json"))
    assert report["benchmark"]["rows"][0]["kind"] == "prefill"


def test_three_nodes_sum_over_gloo(tmp_path):
    report = verify(tmp_path, **ALLREDUCE)
    found = {(check["node"], check["id"]): check for check in report["checks"] if "allreduce" in check["id"]}
    assert set(found) == {(node, f"fabric.allreduce{part}") for node in NODES for part in ("", "_sum", "_bandwidth")}, (
        report["checks"]
    )
    for (_node, name), check in found.items():
        assert check["ok"], check
        if name == "fabric.allreduce_sum":
            assert check["found"] == "every item right, up to 8 MiB"
        if name == "fabric.allreduce_bandwidth":
            print(check["found"])
            assert 0.02 < float(check["found"].split()[0]) < 50
    assert failed(report) == set()
    # the brackets keep the command from finding itself
    assert [on(node, "pgrep -fc -- '--memory-[s]hare' || true") for node in NODES] == ["0", "0", "0"]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        # spark2 puts in what is another rank's: no item of the sum is right
        ("s/self.pattern(items, self.rank, 1)/self.pattern(items, self.rank + 1, 1)/", {"1": 262144, "8": 2097152}),
        # one item of spark2's sum is damaged after it has arrived
        ("s/expected = self.pattern/buffer[items \\/\\/ 2] += 1; &/", {"1": 1, "8": 1}),
    ],
    ids=["a rank's pattern", "one item"],
)
def test_a_wrong_sum_is_found(tmp_path, changed, wrong):
    """The program is given to a command on its standard input, so the command of spark2 can be one that damages it."""
    command = [
        *("sh", "-c", f'if [ "$(hostname)" = spark2 ]; then sed "{changed}"; else cat; fi | "$@"', "allreduce"),
        *ALLREDUCE["fabric_allreduce_command"],
    ]
    report = verify(tmp_path, **{**ALLREDUCE, "fabric_allreduce_command": command})
    assert failed(report) == {(node, "fabric.allreduce_sum") for node in NODES}, report["checks"]
    for check in (check for check in report["checks"] if check["id"] == "fabric.allreduce_sum"):
        # compared before the load and after it
        assert check["found"] == ", ".join(f"{2 * count} wrong of {size} MiB" for size, count in wrong.items())
        assert check["cure"].startswith("do not serve a model over this group")


def test_a_node_without_torch_is_named(tmp_path):
    command = [
        "sh",
        "-c",
        'if [ "$(hostname)" != spark2 ]; then export LD_LIBRARY_PATH=$1 PYTHONPATH=$2; fi; shift 2; exec python3 "$@"',
        "allreduce",
        ALLREDUCE["fabric_allreduce_command"][1].partition("=")[2],
        ALLREDUCE["fabric_allreduce_command"][2].partition("=")[2],
    ]
    report = verify(tmp_path, **{**ALLREDUCE, "fabric_allreduce_command": command, "fabric_allreduce_timeout": 10})
    found = {check["node"]: check["found"] for check in report["checks"] if check["id"] == "fabric.allreduce"}
    assert "cannot import torch" in found["spark2"]
    assert "a rank is missing" in found["spark1"]
