# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_check from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import fabric_check
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

RUNGS = ["presence", "pcie", "carrier", "flaps", "speed", "address", "mtu", "route", "ping", "gid", "active_mtu"]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.script("ping", "echo '2 packets transmitted, 2 received'")
    stand_ins.script("ibv_devinfo", "echo 'No IB devices found'")
    for port in PORTS:
        stand_ins.route(port["peer_address"], port["netdev"], port["address"])
    return stand_ins


@pytest.fixture
def run(tmp_path, commands, capsys):
    sysfs.machine(tmp_path / "sys", "dgx-spark")

    def call(**options):
        roots = {"sysfs_root": str(tmp_path / "sys")}
        arguments = {"ports": PORTS, "mtu": 9000, "node": "spark1", "timeout": 0, **roots, **options}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            fabric_check.main()
        return json.loads(capsys.readouterr().out)

    return call


def healthy(commands):
    commands.links(*(link(port["netdev"], f"{port['address']}/24") for port in PORTS))


def test_all_legs_up(commands, run):
    healthy(commands)
    result = run()
    assert (result["legs_up"], result["legs_total"], result["legs_down"], result["changed"]) == (4, 4, [], False)
    assert [check["id"] for check in result["checks"]] == [*[f"fabric.{rung}" for rung in RUNGS] * 4, "fabric.subnet"]
    assert all(check["ok"] and check["node"] == "spark1" for check in result["checks"])
    assert set(result["checks"][-1]) == {"id", "node", "ok", "severity", "found", "expected", "cure"}
    assert [check["netdevs"] for check in result["checks"][:-1]] == [
        [port["netdev"]] for port in PORTS for _rung in RUNGS
    ]


def test_failed_checks_do_not_fail_the_module(commands, run):
    commands.links(link(PORTS[0]["netdev"], "10.100.0.1/24"), link(PORTS[1]["netdev"], "10.100.1.1/24", mtu=1500))
    result = run()
    assert (result["legs_up"], result["legs_total"], "failed" in result) == (1, 4, False)
    assert result["legs_down"] == [port["netdev"] for port in PORTS[1:]]
    assert [check["id"] for check in result["checks"] if not check["ok"]] == [
        "fabric.mtu",
        "fabric.presence",
        "fabric.presence",
    ]


def test_what_other_modules_found_becomes_part_of_it(commands, run):
    healthy(commands)
    cabling = {
        "id": "fabric.cabling",
        "node": "spark1",
        "ok": False,
        "found": "port 0 hears spark3",
        "expected": "spark2",
    }
    firmware = {"spark1": ["28.47.1026"], "spark2": ["28.45.4028"], "spark3": ["28.45.4028"]}
    result = run(cabling=[cabling, {**cabling, "node": "spark2"}], firmware=firmware)
    assert [(check["id"], check["found"]) for check in result["checks"] if not check["ok"]] == [
        ("fabric.cabling", "port 0 hears spark3"),
        ("fabric.firmware", "28.47.1026"),
    ]
    assert result["legs_up"] == 4


def test_other_hardware_can_be_expected(commands, run):
    healthy(commands)
    bad = {check["id"] for check in run(expected_speed=10000, expected_flaps=1)["checks"] if not check["ok"]}
    assert bad == {"fabric.speed", "fabric.flaps"}
    rungs = {check["id"] for check in run(expected_speed=0, expected_pcie_speed="", rdma=False)["checks"]}
    assert not rungs & {"fabric.speed", "fabric.pcie", "fabric.gid", "fabric.active_mtu"}


def test_runs_in_check_mode(commands, run):
    commands.links()
    assert run(_ansible_check_mode=True)["legs_up"] == 0


def test_bad_options(commands, run):
    assert run(ports=[])["msg"] == "ports is empty, expected the netdevs of the fabric (fabric_ports)"


def test_a_broken_ip_is_an_error(commands, run):
    commands.script("ip", "exit 255")
    result = run()
    assert (result["failed"], result["msg"]) == (True, "ip -j addr: exit 255: no output")
