# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_bandwidth with stand-ins for ib_write_bw and systemd."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric import bandwidth_run
from ansible_collections.gb10.ring.plugins.module_utils.fabric.bandwidth import Rate
from ansible_collections.gb10.ring.plugins.modules import fabric_bandwidth
from ansible_collections.gb10.ring.tests.unit.fixtures import ib_write_bw, sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS


@pytest.fixture
def commands(tmp_path, monkeypatch):
    made = Commands(tmp_path / "bin", monkeypatch)
    for name in ("systemd-run", "systemctl"):
        made.script(name, "")
    answer(made, 92.57)
    return made


def answer(commands, gbps):
    (commands.folder / "report").write_text(ib_write_bw.report(gbps))
    commands.script("ib_write_bw", f"cat {commands.folder}/report")


@pytest.fixture
def run(tmp_path, commands, capsys):
    sysfs.machine(tmp_path / "sys", "dgx-spark")

    def call(state, **options):
        base = {"state": state, "node": "spark1", "ports": PORTS, "sysfs_root": str(tmp_path / "sys")}
        with patch_module_args({**base, **options}), pytest.raises(SystemExit):
            fabric_bandwidth.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_receivers_are_units_that_end_by_themselves(commands, run):
    result = run("listening", nodes=3)
    assert result["units"] == [f"gb10-ring-bandwidth-{12000 + number}.service" for number in range(8)]
    started = commands.calls("systemd-run")
    assert len(started) == 8
    assert all("--property=RuntimeMaxSec=330" in call and "--collect" in call for call in started)
    assert started[0].endswith("-- ib_write_bw -d rocep1s0f0 -i 1 -x 3 -p 12000 -s 1048576 -D 5 -F --report_gbits")
    assert commands.calls("systemctl")[0].startswith("stop gb10-ring-bandwidth-12000.service ")


def test_no_receiver_without_an_rdma_device(tmp_path, commands, run):
    assert run("listening", sysfs_root=str(tmp_path / "none"))["units"] == []


def test_each_leg_alone_then_both_rails_at_once(commands, run):
    result = run("measured", earlier={"checks": [{"id": "fabric.mtu", "ok": True}], "legs_down": []})
    assert [check["id"] for check in result["checks"]] == [
        "fabric.mtu",
        *["fabric.bandwidth", "fabric.bandwidth", "fabric.bandwidth_sum"] * 2,
    ]
    assert all(check["ok"] for check in result["checks"])
    assert (result["legs_up"], result["legs_total"], result["changed"]) == (4, 4, False)
    calls = commands.calls("ib_write_bw")
    assert calls[0] == "-d rocep1s0f0 -i 1 -x 3 -p 12004 -s 1048576 -D 5 -F --report_gbits 10.100.0.2"
    assert {call.split()[7] for call in calls} == {str(12000 + number) for number in range(8)}


def test_legs_that_are_down_are_not_measured(commands, run):
    result = run("measured", earlier={"checks": [], "legs_down": ["enp1s0f0np0", "enP2p1s0f1np1"]})
    assert [check["id"] for check in result["checks"]] == ["fabric.bandwidth"] * 2
    assert (result["legs_up"], result["legs_total"]) == (2, 4)


def test_legs_to_nodes_that_do_not_listen_are_not_measured(commands, run):
    """verify.yml --limit spark1,spark2 on a ring of three: nobody listens on spark3."""
    result = run("measured", listening=["spark1", "spark2"])
    assert [(check["id"], check["ok"], check["severity"]) for check in result["checks"]] == [
        ("fabric.bandwidth", True, "error"),
        ("fabric.bandwidth", True, "error"),
        ("fabric.bandwidth_sum", True, "error"),
        ("fabric.bandwidth", False, "info"),
    ]
    assert result["checks"][-1]["found"] == "enp1s0f1np1, enP2p1s0f1np1 not measured: spark3 outside of this run"
    assert (result["legs_up"], result["legs_total"]) == (4, 4)
    assert {call.split()[-1] for call in commands.calls("ib_write_bw")} == {"10.100.0.2", "10.100.1.2"}
    assert {check["severity"] for check in run("measured", listening=["spark1"])["checks"]} == {"info"}
    assert all(check["ok"] for check in run("measured", listening=["spark1", "spark2", "spark3"])["checks"])


def test_a_degraded_adapter_is_found(commands, run):
    answer(commands, 13.1)
    result = run("measured")
    bad = [check for check in result["checks"] if not check["ok"]]
    assert [check["id"] for check in bad] == ["fabric.bandwidth", "fabric.bandwidth", "fabric.bandwidth_sum"] * 2
    assert "started up degraded" in bad[0]["found"]
    assert result["legs_up"] == 0
    assert all(check["ok"] for check in run("measured", minimum=1, minimum_sum=2)["checks"])


def test_a_run_that_fails_is_a_check_with_the_reason(commands, run, tmp_path):
    commands.script("ib_write_bw", "echo 'IB device rocep1s0f0 not found' >&2; exit 1")
    found = [check["found"] for check in run("measured")["checks"]]
    assert len(found) == 4  # no sum without both
    assert all(text.startswith("no result (IB device rocep1s0f0 not found)") for text in found)
    (check, *_rest) = run("measured", sysfs_root=str(tmp_path / "none"))["checks"]
    assert "no RDMA device with a RoCE v2 GID for 10.100.0.1" in check["found"]


def test_a_missing_program_is_a_check(commands, run, monkeypatch):
    (commands.folder / "ib_write_bw").unlink()
    monkeypatch.setenv("PATH", str(commands.folder))
    assert "ib_write_bw is not installed" in run("measured")["checks"][0]["found"]


def test_stopping(commands, run):
    assert run("stopped")["changed"] is False
    assert [call.split()[0] for call in commands.calls("systemctl")] == ["stop", "reset-failed"]


def test_a_receiver_that_does_not_start_is_an_error(commands, run):
    commands.script("systemd-run", "echo 'Failed to start transient service unit' >&2; exit 1")
    assert "Failed to start transient service unit" in run("listening")["msg"]


def test_bad_ports(commands, run):
    assert run("measured", ports=[])["msg"].startswith("spark1: ports is empty")


def test_it_is_skipped_in_check_mode(commands, run):
    assert run("measured", _ansible_check_mode=True)["skipped"] is True
    assert commands.calls("ib_write_bw") == []


@pytest.mark.parametrize(
    ("answers", "expected", "passed"),
    [
        ([Rate(92.0)], Rate(92.0), 0),
        ([Rate(None, "Couldn't connect"), Rate(92.0)], Rate(92.0), 1),
        ([Rate(None, "not found"), Rate(92.0)], Rate(None, "not found"), 0),
        ([Rate(None, "Couldn't connect")] * 20, Rate(None, "Couldn't connect"), 10),
    ],
)
def test_a_receiver_is_waited_for(answers, expected, passed):
    now = [0.0]
    queue = list(answers)

    def sleep(seconds):
        now[0] += seconds

    assert bandwidth_run.attempt(lambda: queue.pop(0), clock=lambda: now[0], sleep=sleep) == expected
    assert now[0] == passed
