# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.filter.engine_caches import engine_caches
from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.modules import engine_preflight
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_systemd import Systemd


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd()
    monkeypatch.setattr(machine, "run", fake.run)
    return fake


HALF = {"MemTotal": 1 << 20, "MemFree": 1 << 19, "MemAvailable": 1 << 19}  # of a GiB


def call(root, capsys, memory=None, check=False, **options):
    proc = root / "proc"
    proc.mkdir(exist_ok=True)
    (proc / "meminfo").write_text("".join(f"{name}: {kib} kB\n" for name, kib in (memory or HALF).items()))
    spec = {
        "rank": 0,
        "renderer": "venv",
        "ports": {"api": 8000},
        "model": {"root": str(root), "path": str(root / "revisions/r1")},
        "cache_directory": str(root / "cache"),
        "container": None,
    }
    roots = {"proc_root": str(proc), "run_root": str(root / "run"), "nvidia_smi": str(root / "nvidia-smi")}
    arguments = {"node": "spark1", "spec": spec, "memory_wait_s": 0, **roots, **options, "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        engine_preflight.main()
    return json.loads(capsys.readouterr().out)


def bad(result):
    return [check["id"] for check in result["checks"] if not check["ok"]]


def test_everything_that_is_wrong_is_told_at_once(systemd, tmp_path, capsys):
    result = call(tmp_path, capsys, weights_gib=1.0)
    assert (result["changed"], bad(result)) == (False, ["engine.model", "engine.memory"])
    assert "0.5 GiB too few" in result["checks"][-1]["found"]


def test_a_published_engine_is_refused_on_a_node_with_five_gib_left(systemd, tmp_path, capsys):
    """Nothing but the specification says what it takes."""
    _profile, (spec, *_workers) = GROUPS["vllm-tp3-ring-exl3"].specs()
    place = {"root": str(tmp_path), "path": str(tmp_path / "revisions/r1")}
    wanted = {**spec.to_dict(), "model": place, "container": None, "cache_directory": str(tmp_path / "cache")}
    gib = 1 << 20
    memory = {"MemTotal": int(121.6 * gib), "MemFree": 4 * gib, "MemAvailable": 5 * gib}
    result = call(tmp_path, capsys, memory, spec=wanted)
    assert bad(result) == ["engine.model", "engine.memory"]
    found = result["checks"][-1]["found"]
    assert found.startswith(
        "MemAvailable is 5.0 GiB after 0 s, and the engine asks for 97.3 GiB (0.8 x 121.6 GiB = 97.3 GiB): 92.3 GiB too few"
    )
    # The user's own figure counts before the profile's.
    found = call(tmp_path, capsys, memory, spec=wanted, utilization=0)["checks"][-1]["found"]
    assert "91.5 GiB (82.5 weights + 7 activations + 2 graphs = 91.5 GiB): 86.5 GiB too few" in found
    memory["MemAvailable"] = 98 * gib
    assert bad(call(tmp_path, capsys, memory, spec=wanted)) == ["engine.model"]


def test_a_dry_run_asks_for_nothing_that_is_yet_to_come(systemd, tmp_path, capsys):
    assert bad(call(tmp_path, capsys, check=True, weights_gib=1.0)) == []


def test_a_rank_that_runs_has_its_memory(systemd, tmp_path, capsys):
    (tmp_path / "revisions/r1").mkdir(parents=True)
    (tmp_path / "revisions/r1/config.json").write_text("{}")
    systemd.active, systemd.sub = "active", "running"
    assert bad(call(tmp_path, capsys, weights_gib=1.0)) == []


def test_kernels_are_compared_over_the_nodes(systemd, tmp_path, capsys):
    for name in ("f/cached_ops/a/a.so", "f/cached_ops/b/b.o", "torch/own.so"):
        (tmp_path / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / name).write_text("")
    result = call(tmp_path, capsys, check=True)
    assert (result["kernels"], bad(result)) == (["f/cached_ops/a/a.so"], ["engine.kernels"])
    hosts = {"spark1": {"engine_preflight_result": result}, "spark2": {}}
    rows = engine_caches(result["checks"], hosts, ["spark1", "spark2"])
    assert [(row["node"], row["ok"]) for row in rows[-2:]] == [("spark1", True), ("spark2", False)]


@pytest.mark.parametrize(("restart", "severity"), [(False, "warning"), (True, "error")])
def test_a_group_that_compiles_at_its_first_requests_is_left_alone(systemd, tmp_path, capsys, restart, severity):
    (tmp_path / "cache/f/cached_ops/b").mkdir(parents=True)
    (tmp_path / "cache/f/cached_ops/b/b.o").write_text("")
    systemd.active, systemd.sub = "active", "running"
    result = call(tmp_path, capsys, check=True, restart=restart)
    assert result["starts"] is restart
    hosts = {"spark1": {"engine_preflight_result": {**result, "kernels": ["a.so"]}}, "spark2": {}}
    hosts["spark2"] = {"engine_preflight_result": result}
    rows = engine_caches(result["checks"], hosts, list(hosts))
    assert {row["id"]: row["severity"] for row in rows if not row["ok"]} == {
        "engine.kernels": severity,
        "engine.caches": severity,
    }
    hosts["spark1"]["engine_preflight_result"]["starts"] = True  # of one rank that does not run
    assert engine_caches([], hosts, list(hosts))[-1]["severity"] == "error"


def test_kernels_that_the_image_carries_are_not_looked_for(systemd, tmp_path, capsys):
    (tmp_path / "cache/f/cached_ops/b").mkdir(parents=True)
    (tmp_path / "cache/f/cached_ops/b/b.o").write_text("")
    spec = {
        "ports": {},
        "model": {"root": "", "path": ""},
        "cache_directory": str(tmp_path / "cache"),
        "kernels_from": "image",
    }
    result = call(tmp_path, capsys, check=True, spec=spec)
    assert (result["kernels"], bad(result)) == (None, [])
    rows = engine_caches([], {"spark1": {"engine_preflight_result": result}}, ["spark1"])
    assert [row["found"] for row in rows] == ["not looked at: the image carries them"]
