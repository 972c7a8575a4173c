# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric import cabling_job, cabling_nics
from ansible_collections.gb10.ring.plugins.module_utils.fabric.cabling_nics import Fabric, Nic
from ansible_collections.gb10.ring.plugins.modules import fabric_cabling

ROWS = [{"netdev": "e0", "port": 0, "rail": 0, "heard": []}]
BASE = {"node": "spark1", "run": "abc1"}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with one fabric netdev; what `observe` was called with."""
    calls = []

    def observe(nics, sender, timing, bring_up, wanted):
        calls.append({"nics": nics, "sender": sender, "timing": timing, "bring_up": bring_up, "wanted": wanted()})
        return [dict(row) for row in ROWS]

    monkeypatch.setattr(fabric_cabling, "observe", observe)
    fabric = Fabric((Nic(0, 0, "e0"),), "guid1", "sys_image_guid", {"e0": "roce0"})
    monkeypatch.setattr(cabling_nics, "read_fabric", lambda root, ports: fabric)
    monkeypatch.setattr(cabling_nics, "read_addresses", lambda: {"enP7s7": ["192.0.2.11/24"]})
    monkeypatch.setattr(cabling_job, "start", lambda run, work: calls.append({"run": run, "work": work}))
    return calls


def run(capsys, check=False, **options):
    with patch_module_args({**BASE, **options, "_ansible_check_mode": check}), pytest.raises(SystemExit) as ended:
        fabric_cabling.main()
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_the_whole_probe(machine, capsys):
    code, result = run(capsys)
    assert code == 0
    assert (result["node"], result["nonce"], result["machine"], result["changed"]) == ("spark1", "abc1", "guid1", False)
    assert result["ports"] == [{**ROWS[0], "rdma_device": "roce0"}]
    assert result["addresses"] == {"enP7s7": ["192.0.2.11/24"]}
    assert machine[0]["bring_up"]
    assert machine[0]["wanted"] == 0
    assert (machine[0]["timing"].duration, machine[0]["timing"].carrier_timeout) == (4, 6)


def test_check_mode_probes_and_sets_nothing_up(machine, capsys):
    code, result = run(capsys, check=True)
    assert (code, len(result["ports"])) == (0, 1)
    assert not machine[0]["bring_up"]


def test_start_leaves_the_work_to_the_background(machine, capsys):
    code, result = run(capsys, phase="start", bring_up=False)
    assert (code, "ports" in result) == (0, False)
    assert machine[0]["run"] == "abc1"
    assert machine[0]["work"](lambda: None)["ports"][0]["netdev"] == "e0"
    assert (machine[1]["bring_up"], machine[1]["wanted"]) == (False, None)


def test_collect_knows_how_long_a_probe_can_take(machine, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        cabling_job, "collect", lambda run, timeout, since: asked.append((run, timeout, since)) or {"ports": []}
    )
    code, _result = run(capsys, phase="collect", duration=10, carrier_timeout=20)
    assert code == 0
    run(capsys, phase="collect", duration=10, carrier_timeout=20, started_s=2.5)
    run(capsys, phase="collect", duration=10, carrier_timeout=20, started_s=-1)  # a clock that was set back
    longest = 10 * 2 + 20 + fabric_cabling.GRACE
    assert asked == [("abc1", longest, 0), ("abc1", longest, 2.5), ("abc1", longest, 0)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run": "../x"}, "spark1: run is '../x'"),
        ({"node": "two words"}, "not fit for a frame"),
    ],
)
def test_refused_options(machine, capsys, options, said):
    code, result = run(capsys, **options)
    assert code == 1
    assert said in result["msg"]
    assert machine == []


def test_a_machine_without_fabric_netdevs_is_named(capsys, tmp_path):
    code, result = run(capsys, phase="start", sysfs_root=str(tmp_path))
    assert code == 1
    assert result["msg"].startswith("spark1: no netdev below")
