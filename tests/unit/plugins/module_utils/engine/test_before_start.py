# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import before_look
from ansible_collections.gb10.ring.plugins.module_utils.engine.before_start import Start, checks, parity
from ansible_collections.gb10.ring.plugins.module_utils.engine.traces import Holder, Traces
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory.holders import Process

FINE = Start("spark1", "u.service", False, Traces(), "/m/revisions/r1")


def verdicts(start):
    return {check.id: check.ok for check in checks(start)}


def with_(**changes):
    return Start(**{**FINE.__dict__, **changes})


def test_a_node_that_is_ready():
    assert verdicts(FINE) == dict.fromkeys(
        ("engine.stale", "engine.ports", "engine.model", "engine.kernels", "engine.memory"), True
    )
    more = with_(found=Traces(gpu=()), image_name="n@sha256:1")
    assert verdicts(more) == {**verdicts(FINE), "engine.gpu": True, "engine.image": True}
    assert "engine.memory" not in verdicts(with_(active=True))


@pytest.mark.parametrize(
    ("start", "failed", "found"),
    [
        (with_(found=Traces(processes=(Process(8, "vllm", 0, ""),))), "engine.stale", "pid 8 vllm (0.0 GiB resident)"),
        (with_(found=Traces(ports={8000: Holder(9, "nginx")})), "engine.ports", "8000 by pid 9 nginx"),
        (with_(found=Traces(gpu=(Holder(9, "python3"),))), "engine.gpu", "pid 9 python3"),
        (with_(found=Traces(gpu_problem="exit 9: failed")), "engine.gpu", "exit 9: failed"),
        (with_(missing=tuple("abcdefg")), "engine.model", "a, b, c, d, e and 2 more missing"),
        (with_(image_name="n", image="No such image"), "engine.image", "No such image"),
        (with_(memory="MemAvailable is 1.0 GiB"), "engine.memory", "MemAvailable is 1.0 GiB"),
        (with_(kernels=("x/cached_ops/a/a.o",)), "engine.kernels", "object files and no library in x/cached_ops/a"),
    ],
)
def test_what_stands_in_the_way(start, failed, found):
    bad = [check for check in checks(start) if not check.ok]
    assert [(check.id, check.found) for check in bad] == [(failed, found)]
    assert bad[0].cure
    assert bad[0].severity == "error"


HALF_BUILT = ("x/cached_ops/a/a.o",)


@pytest.mark.parametrize(
    ("active", "restart", "severity"),
    [(True, False, "warning"), (True, True, "error"), (False, False, "error"), (False, True, "error")],
)
def test_a_build_matters_to_a_rank_that_will_load(active, restart, severity):
    start = with_(kernels=HALF_BUILT, active=active, restart=restart)
    (bad,) = [check for check in checks(start) if not check.ok]
    assert (bad.id, bad.severity, start.starts) == ("engine.kernels", severity, severity == "error")
    assert bad.cure.startswith("remove") is start.starts


def test_kernels_that_differ_are_a_warning_while_the_group_runs():
    rows = parity([], {"a": ["k.so"], "b": []}, starts=False)
    assert [(row["ok"], row["severity"]) for row in rows] == [(True, "warning"), (False, "warning")]


def test_kernels_that_differ_end_it_before_anything_is_touched():
    rows = parity([{"id": "x"}], {"a": ["k.so"], "b": []})
    assert rows[0] == {"id": "x"}
    assert [(row["node"], row["ok"], row["found"], row["severity"]) for row in rows[1:]] == [
        ("a", True, "the kernels that the other nodes have", "error"),
        ("b", False, "lacks k.so", "error"),
    ]


@pytest.mark.parametrize(
    ("kernels", "found"),
    [
        ({"a": [], "b": []}, "none on any node"),
        ({"a": ["k.so"], "b": ["k.so"]}, "the kernels that the other nodes have"),
        ({"a": None, "b": None}, "not looked at: the image carries them"),
    ],
)
def test_kernels_that_are_alike(kernels, found):
    assert [(row["ok"], row["found"]) for row in parity([], kernels)] == [(True, found)] * 2


def test_kernels_of_an_image_are_not_looked_at():
    (check,) = [check for check in checks(with_(kernels=None)) if check.id == "engine.kernels"]
    assert (check.ok, check.found) == (True, "not looked at: the image carries them")


@pytest.fixture
def place(tmp_path):
    found = tmp_path / "revisions/r1"
    found.mkdir(parents=True)
    for name in ("config.json", "a.safetensors"):
        (found / name).write_text("{}")
    return found


def test_files_of_the_receipt_count_without_those_in_slices(tmp_path, place):
    entry = {"size": 2, "digest": "d", "mtime_ns": 1}
    files = [
        {"path": path, **entry} for path in ("config.json", "a.safetensors", "b.safetensors", "engram.safetensors")
    ]
    receipt = {"name": "n", "revision": "r1", "created": "c", "files": files, "sliced": ["engram.safetensors"]}
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts/r1.json").write_text(json.dumps(receipt))
    assert before_look.missing(tmp_path, place) == ("b.safetensors",)
    (tmp_path / "receipts/r1.json").write_text("[]")
    with pytest.raises(HostError, match="is not a receipt"):
        before_look.missing(tmp_path, place)


def test_without_a_receipt_the_weight_index_counts(tmp_path, place):
    assert before_look.missing(tmp_path, place) == ()
    index = {"weight_map": {"x": "a.safetensors", "y": "c.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    assert before_look.missing(tmp_path, place) == ("c.safetensors",)
    (place / "model.safetensors.index.json").write_text("{")
    with pytest.raises(HostError, match="cannot tell which files"):
        before_look.missing(tmp_path, place)
    assert before_look.missing(tmp_path, tmp_path / "revisions/r9") == ("config.json",)
