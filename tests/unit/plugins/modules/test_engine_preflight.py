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
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_systemd import Systemd


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd()
    monkeypatch.setattr(machine, "run", fake.run)
    return fake


def call(root, capsys, check=False, **options):
    proc = root / "proc"
    proc.mkdir(exist_ok=True)
    (proc / "meminfo").write_text("MemTotal: 1048576 kB\nMemFree: 524288 kB\nMemAvailable: 524288 kB\n")
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
