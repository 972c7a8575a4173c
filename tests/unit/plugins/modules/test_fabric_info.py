# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_info from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import LIMITS_FILE, Wanted, files
from ansible_collections.gb10.ring.plugins.modules import fabric_info
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS


@pytest.fixture
def on_machine(tmp_path, monkeypatch, capsys):
    """A function that runs the module on one of the trees; /proc and /etc are those of a healthy node."""
    commands = Commands(tmp_path / "bin", monkeypatch)
    sysfs.write(tmp_path / "proc/meminfo", "CmaTotal: 131072 kB\nCmaFree: 1024 kB")
    sysfs.write(tmp_path / "etc" / LIMITS_FILE, files(Wanted((), "unlimited", ""))[LIMITS_FILE])

    def run(tree, **options):
        root = tmp_path / tree
        commands.links(*sysfs.machine(root, tree))
        roots = {"sysfs_root": str(root), "proc_root": str(tmp_path / "proc"), "etc_root": str(tmp_path / "etc")}
        with patch_module_args({**roots, **options}), pytest.raises(SystemExit):
            fabric_info.main()
        return json.loads(capsys.readouterr().out)

    return run


def ids(result, ok=None):
    return [check["id"] for check in result["checks"] if ok is None or check["ok"] is ok]


def test_facts_without_a_plan(on_machine):
    result = on_machine("dgx-spark")
    assert [port["netdev"] for port in result["ports"]] == [port["netdev"] for port in PORTS]
    assert [port["gid_index"] for port in result["ports"]] == [3, 3, 3, 3]
    assert set(result["ports"][0]) == set(fabric_info.info.Function.__dataclass_fields__)
    assert (result["sys_image_guid"], result["firmware"]) == (sysfs.SYS_IMAGE_GUID, [sysfs.FIRMWARE])
    assert (result["hotplug"], result["changed"], result["checks"]) == (True, False, [])


def test_checks_of_a_healthy_node(on_machine):
    result = on_machine("dgx-spark", node="spark1", ports=PORTS)
    assert ids(result) == [*["rdma.device", "rdma.state", "rdma.rate"] * 4, "rdma.memlock", "rdma.cma"]
    assert ids(result, ok=False) == []


@pytest.mark.parametrize(
    ("tree", "present", "bad"),
    [
        ("one-cable-out", 4, ["rdma.state"] * 2),
        ("hotplug-off", 0, ["rdma.device"] * 4),
        ("renamed", 4, ["rdma.device"] * 4),
        ("bonded", 4, []),
        ("vm", 1, ["rdma.device"] * 4),
    ],
)
def test_nothing_that_is_missing_is_an_error(on_machine, tree, present, bad):
    result = on_machine(tree, node="spark1", ports=PORTS)
    assert "failed" not in result
    assert sum(port["present"] for port in result["ports"]) == present
    assert ids(result, ok=False) == bad


def test_the_memlock_check_can_be_left_out(on_machine):
    assert "rdma.memlock" not in ids(on_machine("dgx-spark", node="spark1", ports=PORTS, memlock=""))


@pytest.mark.parametrize(("rate", "bad"), [(100, ["rdma.rate"] * 4), (0, [])])
def test_another_rate_can_be_expected(on_machine, rate, bad):
    assert ids(on_machine("dgx-spark", node="spark1", ports=PORTS, expected_rate=rate), ok=False) == bad


def test_ports_that_cannot_be_used(on_machine):
    assert on_machine("dgx-spark", ports=[{"port": 0}])["msg"].startswith("ports[0]: rail, netdev")


def test_runs_in_check_mode(on_machine):
    assert len(on_machine("dgx-spark", _ansible_check_mode=True)["ports"]) == 4
