# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import group_intent, life, machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import Reply
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


UNIT, QUADLET = "systemd/system/gb10-ring-engine.service", "containers/systemd/gb10-ring-engine.container"
ALL = ["gb10-ring/engine-gid.py", "gb10-ring/engine-rows.py", "gb10-ring/engine.json", UNIT]
CONTAINER = {"executable": "vllm", "image": f"example.org/vllm@sha256:{'a' * 64}"}


def test_unit_check_mode_shows_all_files_and_writes_none(systemd, node, capsys):
    result = unit(node, capsys, check=True)
    assert result["changed"]
    assert result["restart"]
    assert [entry["before"] for entry in result["diff"]] == ["", "", "", "", "disabled\n"]
    assert "ExecStart=" in result["diff"][3]["after"]
    assert written(node) == []
    assert systemd.calls == []


def test_unit_is_written_enabled_and_then_left_alone(systemd, node, capsys):
    result = unit(node, capsys)
    assert result["changed"]
    assert result["url"] == "http://192.0.2.11:8000"
    assert result["model"] == f"{node}/m/revisions/r1"
    assert written(node) == ALL
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
    files = ["gb10-ring/engine.json", "gb10-ring/engine-gid.py", "gb10-ring/engine-rows.py", UNIT]
    for entry, name in zip(planned, files, strict=False):
        assert entry["before_header"] == f"{node}/etc/{name}"
        assert (node / "etc" / name).read_text() == entry["after"]


def test_unit_returns_the_specification_that_it_records(systemd, node, capsys):
    result = unit(node, capsys)
    record = json.loads((node / "etc/gb10-ring/engine.json").read_text())
    assert record == {"unit": "gb10-ring-engine.service", **result["spec"]}
    assert result["spec"]["gid_devices"]["rocep1s0f0"] == "10.100.0.1"


def found(state="4: ACTIVE", **changes):
    """fabric_info's ports; changes by RDMA device."""
    return [
        {"netdev": port["netdev"], "present": True, "rdma_device": port["rdma_device"], "rdma_state": state, **changes}
        for port in PORTS
    ]


def test_unit_names_the_devices_that_are_there(systemd, node, capsys):
    seen = found()
    seen[0]["rdma_device"], seen[3]["rdma_state"] = "mlx5_7", "1: DOWN"
    result = unit(node, capsys, found=seen)
    assert result["spec"]["env"]["NCCL_IB_HCA"] == "=mlx5_7,rocep1s0f1,roceP2p1s0f0"


def test_a_node_without_an_active_device_is_refused_other_than_in_a_dry_run(systemd, node, capsys):
    result = unit(node, capsys, found=found("1: DOWN"))
    assert result["failed"]
    assert "no RDMA device of the fabric is ACTIVE (enp1s0f0np0: rocep1s0f0 1: DOWN" in result["msg"]
    assert written(node) == []
    planned = unit(node, capsys, check=True, found=found("1: DOWN"))
    assert planned["spec"]["env"]["NCCL_IB_HCA"] == "=rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1"


@pytest.fixture
def runtimes(systemd, node, monkeypatch):
    for name in ("docker", "podman"):
        (node / name).write_text("")
        (node / name).chmod(0o755)
        monkeypatch.setitem(machine.RUNTIMES, name, str(node / name))


def test_another_renderer_takes_over_and_leaves_nothing_of_the_first(systemd, node, capsys, runtimes):
    first = unit(node, capsys)
    podman = unit(node, capsys, profile={**CONTAINER, "renderer": "podman"})
    assert written(node) == [QUADLET, *ALL[:3]]
    assert podman["hash"] != first["hash"]
    assert f"{node}/etc/{UNIT}: another renderer's, not used any more" in podman["reasons"]
    assert systemd.calls == ["daemon-reload", "enable", "disable", "daemon-reload"]
    assert not unit(node, capsys, profile={**CONTAINER, "renderer": "podman"})["changed"]
    docker = unit(node, capsys, profile={**CONTAINER, "renderer": "docker"})
    assert written(node) == ALL
    assert docker["argv"][0] == "vllm"


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ({**CONTAINER, "renderer": "docker", "image": "x:latest"}, "image is x:latest, a tag that can move"),
        ({**CONTAINER, "renderer": "kubernetes"}, "expected the key kubernetes"),
        ({"shapes": ["pair"]}, "is for nodes cabled as pair, ring_shape is ring"),
        ({"env": {"NCCL_IB_GID_INDEX": 3}}, "env has NCCL_IB_GID_INDEX=3"),
    ],
)
def test_profiles_that_do_not_hold_change_nothing(node, capsys, runtimes, profile, says):
    result = unit(node, capsys, profile=profile)
    assert result["failed"]
    assert says in result["msg"]
    assert written(node) == []


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


def service(capsys, tmp_path, check=False, **options):
    roots = {name: str(tmp_path / name) for name in ("etc_root", "run_root", "proc_root", "shm_root")}
    return call(engine_service, capsys, check, **roots, memory_wait_s=0, **options)


def intent(tmp_path):
    found = json.loads((tmp_path / "run_root/gb10-ring-group/intent.json").read_text())
    return found["want"], found["by"], found["why"]


def test_service_start_stop_and_nothing_to_do(systemd, capsys, tmp_path):
    started = service(capsys, tmp_path, state="started", reason="a test")
    assert (started["changed"], started["before"], started["after"]) == (True, "no unit", "no unit")
    assert intent(tmp_path) == ("started", "role", "a test")
    systemd.loaded = True
    assert not service(capsys, tmp_path, state="started")["changed"]
    stopped = service(capsys, tmp_path, state="stopped", reason="another")
    assert (stopped["before"], stopped["after"]) == ("active (running)", "inactive (dead)")
    assert intent(tmp_path) == ("stopped", "role", "another")
    assert not service(capsys, tmp_path, state="stopped")["changed"]
    assert systemd.calls == ["start", "stop"]


def test_a_stop_where_nothing_was_ever_started_leaves_nothing(systemd, capsys, tmp_path):
    """Or a second uninstallation would find something to remove."""
    assert not service(capsys, tmp_path, state="stopped")["changed"]
    assert not (tmp_path / "run_root/gb10-ring-group").exists()


def test_service_looks_at_what_a_stop_leaves(systemd, capsys, tmp_path):
    systemd.active, systemd.sub = "active", "running"
    (tmp_path / "etc_root/gb10-ring").mkdir(parents=True)
    record = {"rank": 0, "renderer": "venv", "ports": {"api": 8000, "rendezvous": 29500}}
    (tmp_path / "etc_root/gb10-ring/engine.json").write_text(json.dumps(record))
    net = tmp_path / "proc_root/net"
    net.mkdir(parents=True)
    (net / "tcp").write_text("  sl\n 0: 00000000:1F40 00000000:0000 0A 0:0 00:0 0 0 0 77 1\n")
    (tmp_path / "proc_root/meminfo").write_text("MemTotal: 125829120 kB\nMemFree: 83886080 kB\n")
    result = service(capsys, tmp_path, state="stopped")
    assert result["failed"]
    assert result["msg"] == (
        "gb10-ring-engine.service is stopped, but: port 8000 is held by pid 0 a process of another namespace. Cure: end it, or choose "
        "another port; 32.0 GiB of memory have not come back, and no process holds them: the driver keeps them. Cure: reboot the node"
    )


def test_a_node_that_was_left_to_others_is_stopped_at_once(systemd, capsys, tmp_path):
    (tmp_path / "etc_root/gb10-ring").mkdir(parents=True)
    record = {"rank": 0, "renderer": "venv", "ports": {"api": 8000}}
    (tmp_path / "etc_root/gb10-ring/engine.json").write_text(json.dumps(record))
    (tmp_path / "proc_root/net").mkdir(parents=True)
    (tmp_path / "proc_root/net/tcp").write_text("  sl\n 0: 00000000:1F40 00000000:0000 0A 0:0 00:0 0 0 0 77 1\n")
    (tmp_path / "proc_root/meminfo").write_text("MemTotal: 125829120 kB\nMemFree: 83886080 kB\n")
    result = service(capsys, tmp_path, state="stopped")
    assert (result["changed"], result.get("failed"), result["note"]) == (False, None, "")


def test_who_else_computes_is_named_after_a_stop(systemd, capsys, tmp_path, monkeypatch):
    systemd.active, systemd.sub = "active", "running"
    (tmp_path / "proc_root/77").mkdir(parents=True)
    (tmp_path / "proc_root/77/comm").write_text("ollama\n")
    (tmp_path / "proc_root/77/cgroup").write_text("0::/user.slice\n")
    (tmp_path / "proc_root/meminfo").write_text("MemTotal: 125829120 kB\nMemFree: 83886080 kB\n")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 77\n")
    smi.chmod(0o755)
    result = service(capsys, tmp_path, state="stopped", nvidia_smi=str(smi))
    assert (result["changed"], result.get("failed")) == (True, None)
    assert "32.0 GiB of memory are held by no process, and pid 77 ollama computes on the GPU" in result["note"]


@pytest.mark.parametrize(("state", "changed"), [("started", True), ("restarted", True), ("stopped", False)])
def test_service_check_mode_acts_on_nothing(systemd, capsys, tmp_path, state, changed):
    assert service(capsys, tmp_path, check=True, state=state)["changed"] is changed
    assert systemd.calls == []
    assert not (tmp_path / "run_root").exists()


def test_service_says_why_it_failed(systemd, capsys, tmp_path):
    systemd.refuses = "stop"
    systemd.active, systemd.sub = "active", "running"
    result = service(capsys, tmp_path, state="stopped")
    assert result["failed"]
    assert result["msg"] == "systemctl stop: exit 1: refused"


def test_service_leaves_it_to_the_report_why_a_rank_ended(systemd, capsys, tmp_path):
    systemd.starts_as = ("failed", "failed")
    result = service(capsys, tmp_path, state="started")
    assert (result["ended"], result["changed"]) == (True, True)
    systemd.starts_as = ("active", "running")
    assert service(capsys, tmp_path, state="started")["ended"] is False
    assert service(capsys, tmp_path, state="stopped")["ended"] is False


def test_service_starts_nothing_beside_a_rank_that_has_failed(systemd, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(life, "_LAG_S", 0.1)
    status = {"at": time.monotonic(), "node": "a", "ranks": {"a": {"state": "stopped"}, "b": {"state": "failed"}}}
    group_intent.replace(group_intent.path(str(tmp_path / "run_root"), "status"), status)
    assert service(capsys, tmp_path, state="started")["ended"] is True
    assert systemd.calls == []


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
            "run_root": str(tmp_path / "run_root"),
            **options,
        },
    )


def test_ready_says_which_rank_ended_first(systemd, capsys, tmp_path):
    systemd.loaded = True
    own = {"state": "stopped", "by": "group", "why": "b: its engine ended by itself: signal, status 9"}
    status = {"at": time.monotonic(), "node": "a", "ranks": {"a": own, "b": {"state": "failed", "why": "of b"}}}
    group_intent.replace(group_intent.path(str(tmp_path / "run_root"), "status"), status)
    check = ready(capsys, tmp_path)["checks"][0]
    assert check["found"] == "inactive (dead); ended with its group: b: its engine ended by itself: signal, status 9"
    assert check["cure"].startswith("see to the rank that ended first")


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
    assert result["tail"] == ["first line", "last line"]


def test_ready_waits_for_the_line_of_the_record_and_judges_the_log(systemd, capsys, tmp_path, monkeypatch):
    systemd.loaded, systemd.active, systemd.sub = True, "active", "running"
    models = {"data": [{"id": "m"}]}
    monkeypatch.setattr(machine, "ask", lambda url, path: Reply(200, json.dumps(models)))
    log = []
    monkeypatch.setattr(machine, "log_of_run", lambda unit: log)
    (tmp_path / "gb10-ring").mkdir()
    (tmp_path / "gb10-ring/engine.json").write_text(json.dumps({"readiness": {"line": "fired up"}}))
    assert ready(capsys, tmp_path)["state"] == "ready"
    wanted = {"ready_line": True, "log_lines": [{"text": "Socket", "want": "absent", "means": "slow"}]}
    result = ready(capsys, tmp_path, **wanted)
    assert result["state"] == "waiting"
    assert "its log lacks 'fired up'" in result["checks"][1]["found"]
    log.append("Socket, and fired up")
    result = ready(capsys, tmp_path, **wanted)
    assert result["state"] == "ready"
    assert [(check["id"], check["ok"], check["severity"]) for check in result["checks"]] == [
        ("engine.unit", True, "error"),
        ("engine.health", True, "error"),
        ("engine.log", False, "error"),
    ]


def test_ready_shows_twenty_lines_and_returns_more(systemd, capsys, tmp_path):
    systemd.loaded, systemd.active, systemd.sub = True, "failed", "failed"
    systemd.lines = [f"line {number}" for number in range(150)]
    result = ready(capsys, tmp_path)
    assert len(result["tail"]) == 150
    cure = result["checks"][0]["cure"]
    assert "line 130" in cure and "line 129" not in cure


def test_ready_ends_early_on_an_ended_unit(systemd, capsys, tmp_path):
    systemd.loaded, systemd.active, systemd.sub = True, "activating", "auto-restart"
    result = ready(capsys, tmp_path, rank=2, timeout_s=60)
    assert result["state"] == "ended"
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [("engine.unit", False)]
