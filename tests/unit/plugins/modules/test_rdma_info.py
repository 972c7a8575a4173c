from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import LIMITS_FILE, Wanted, files
from ansible_collections.gb10.ring.plugins.modules import rdma_info
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs

PORTS = [
    {"port": 0, "rail": 0, "netdev": "enp1s0f0np0", "rdma_device": "rocep1s0f0", "address": "10.100.0.1", "prefix": 24},
    {"port": 1, "rail": 0, "netdev": "enp1s0f1np1", "rdma_device": "rocep1s0f1", "address": "10.100.4.1", "prefix": 24},
]


@pytest.fixture
def tree(tmp_path):
    """Two devices, the second with a foreign address before the planned one."""
    sysfs.device(tmp_path / "sys", "rocep1s0f0", "enp1s0f0np0", sysfs.gid_table("10.100.0.1"))
    sysfs.device(tmp_path / "sys", "rocep1s0f1", "enp1s0f1np1", sysfs.gid_table("192.168.2.1", "10.100.4.1"))
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("CmaTotal: 131072 kB\nCmaFree: 1024 kB\n")
    limits = tmp_path / "etc" / LIMITS_FILE
    limits.parent.mkdir(parents=True)
    limits.write_text(files(Wanted((), "unlimited", ""))[LIMITS_FILE])
    return tmp_path


def call(tree, capsys, **options):
    arguments = {
        "node": "spark1",
        "ports": PORTS,
        "sysfs_root": str(tree / "sys"),
        "proc_root": str(tree / "proc"),
        "etc_root": str(tree / "etc"),
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        rdma_info.main()
    return json.loads(capsys.readouterr().out)


def test_healthy(tree, capsys):
    result = call(tree, capsys)
    assert [check["id"] for check in result["checks"] if not check["ok"]] == []
    assert [check["id"] for check in result["checks"]] == [
        *["rdma.device", "rdma.state", "rdma.rate", "rdma.gid"] * 2,
        "rdma.memlock",
        "rdma.cma",
    ]
    assert [device["gid_index"] for device in result["devices"]] == [3, 5]
    assert {device["sys_image_guid"] for device in result["devices"]} == {sysfs.SYS_IMAGE_GUID}
    assert result["changed"] is False


def test_nothing_there(tmp_path, capsys):
    result = call(tmp_path, capsys)
    assert [check["id"] for check in result["checks"]] == ["rdma.device", "rdma.device", "rdma.memlock"]
    assert [device["present"] for device in result["devices"]] == [False, False]


def test_the_memlock_check_can_be_left_out(tree, capsys):
    assert "rdma.memlock" not in [check["id"] for check in call(tree, capsys, memlock="")["checks"]]


def test_another_rate_can_be_expected(tree, capsys):
    bad = [check["found"] for check in call(tree, capsys, expected_rate=100)["checks"] if not check["ok"]]
    assert bad == [
        f"{name} (port {port}, rail 0) 200 Gb/sec (4X HDR)" for port, name in enumerate(["rocep1s0f0", "rocep1s0f1"])
    ]


def test_ports_that_cannot_be_used(tree, capsys):
    assert call(tree, capsys, ports=[{"port": 0}])["msg"].startswith("spark1: ports[0]: rail, netdev")
