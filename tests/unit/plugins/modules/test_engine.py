# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.modules import engine_ready, engine_service, engine_unit
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_systemd import Systemd


@pytest.fixture
def systemd(monkeypatch):
    fake = Systemd(loaded=False)
    monkeypatch.setattr(machine, "run", fake.run)
    monkeypatch.setattr(machine, "_POLL", 0.01)
    return fake


@pytest.fixture
def node(tmp_path):
    """A machine with an engine installed and a revision active."""
    (tmp_path / "engine").write_text("#!/bin/sh\n")
    (tmp_path / "engine").chmod(0o755)
    (tmp_path / "m/revisions/r1").mkdir(parents=True)
    (tmp_path / "m/revisions/r1/config.json").write_text("{}")
    (tmp_path / "m/current").symlink_to("revisions/r1")
    return tmp_path


def call(module, capsys, check=False, **options):
    with patch_module_args({**options, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def unit(node, capsys, check=False, profile=None, **options):
    values = {"name": "x", "executable": str(node / "engine"), "served_model_name": "m", "tensor_parallel": "ring_size"}
    return call(
        engine_unit,
        capsys,
        check,
        **{
            "profile": {**values, **(profile or {})},
            "rank": 1,
            "size": 3,
            "shape": "ring",
            "ports": PORTS,
            "management_interface": "enP7s7",
            "management_address": "192.0.2.12",
            "head_address": "192.0.2.11",
            "model_root": str(node / "m"),
            "etc_root": str(node / "etc"),
            **options,
        },
    )


def written(node):
    return sorted(str(path.relative_to(node / "etc")) for path in (node / "etc").rglob("*") if path.is_file())


BOTH = ["gb10-ring/engine.json", "systemd/system/gb10-ring-engine.service"]


def test_unit_check_mode_shows_both_files_and_writes_none(systemd, node, capsys):
    result = unit(node, capsys, check=True)
    assert result["changed"]
    assert result["restart"]
    assert [entry["before"] for entry in result["diff"]] == ["", "", "disabled\n"]
    assert "ExecStart=" in result["diff"][1]["after"]
    assert written(node) == []
    assert systemd.calls == []


def test_unit_is_written_enabled_and_then_left_alone(systemd, node, capsys):
    result = unit(node, capsys)
    assert result["changed"]
    assert result["url"] == "http://192.0.2.11:8000"
    assert result["model"] == f"{node}/m/revisions/r1"
    assert written(node) == BOTH
    assert systemd.calls == ["daemon-reload", "enable"]
    again = unit(node, capsys)
    assert not again["changed"]
    assert again["diff"] == []
    assert systemd.calls == ["daemon-reload", "enable"]
    assert again["restart"]  # it does not run yet
    assert again["hash"] == result["hash"]


def test_unit_diff_and_apply_are_one_plan(systemd, node, capsys):
    planned = unit(node, capsys, check=True)["diff"]
    assert unit(node, capsys)["diff"] == planned
    assert (node / "etc/systemd/system/gb10-ring-engine.service").read_text() == planned[1]["after"]
    assert (node / "etc/gb10-ring/engine.json").read_text() == planned[0]["after"]


def test_a_changed_model_configuration_changes_the_unit(systemd, node, capsys):
    unit(node, capsys)
    (node / "m/revisions/r1/config.json").write_text('{"padded": true}')
    assert unit(node, capsys, check=True)["changed"]


def test_a_dry_run_on_a_bare_machine(systemd, node, capsys):
    result = unit(node, capsys, check=True, model_root=str(node / "nothing"))
    assert result["changed"]
    assert result["model"].endswith("/revisions/NOT-STAGED")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"profile": {"agrs": []}}, "unknown key agrs, did you mean args?"),
        ({"profile": {"executable": "/nowhere/vllm"}}, "/nowhere/vllm is no executable file"),
        ({"revision": "r9"}, "revision r9 is not staged here"),
        ({"rank": 3}, "ring_rank is 3"),
    ],
)
def test_unit_refusals_change_nothing(systemd, node, capsys, options, says):
    result = unit(node, capsys, **options)
    assert result["failed"]
    assert says in result["msg"]
    assert written(node) == []
    assert systemd.calls == []


def test_service_start_stop_and_nothing_to_do(systemd, capsys):
    started = call(engine_service, capsys, state="started")
    assert (started["changed"], started["before"], started["after"]) == (True, "no unit", "no unit")
    systemd.loaded = True
    assert not call(engine_service, capsys, state="started")["changed"]
    stopped = call(engine_service, capsys, state="stopped")
    assert (stopped["before"], stopped["after"]) == ("active (running)", "inactive (dead)")
    assert not call(engine_service, capsys, state="stopped")["changed"]
    assert systemd.calls == ["start", "stop"]


@pytest.mark.parametrize(("state", "changed"), [("started", True), ("restarted", True), ("stopped", False)])
def test_service_check_mode_acts_on_nothing(systemd, capsys, state, changed):
    assert call(engine_service, capsys, check=True, state=state)["changed"] is changed
    assert systemd.calls == []


def test_service_says_why_it_failed(systemd, capsys):
    systemd.refuses = "start"
    result = call(engine_service, capsys, state="started")
    assert result["failed"]
    assert result["msg"] == "systemctl start: exit 1: refused"


def ready(capsys, tmp_path, **options):
    return call(
        engine_ready,
        capsys,
        **{
            "node": "spark1",
            "rank": 0,
            "url": "http://127.0.0.1:9",
            "served_model_name": "m",
            "timeout_s": 0,
            "etc_root": str(tmp_path),
            **options,
        },
    )


def test_ready_looks_once_and_does_not_fail(systemd, capsys, tmp_path):
    systemd.loaded, systemd.active, systemd.sub = True, "active", "running"
    result = ready(capsys, tmp_path, probe=True)
    assert "failed" not in result
    assert result["state"] == "waiting"
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [
        ("engine.unit", True),
        ("engine.health", False),
    ]
    assert "last line" in result["checks"][1]["cure"]


def test_ready_ends_early_on_an_ended_unit(systemd, capsys, tmp_path):
    systemd.loaded, systemd.active, systemd.sub = True, "activating", "auto-restart"
    result = ready(capsys, tmp_path, rank=2, timeout_s=60)
    assert result["state"] == "ended"
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [("engine.unit", False)]
