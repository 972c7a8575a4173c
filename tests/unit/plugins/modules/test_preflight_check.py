from __future__ import annotations

import json
import os
import time

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import preflight_check


def call(capsys, **options):
    with patch_module_args({"node": "spark1", **options}), pytest.raises(SystemExit):
        preflight_check.main()
    return json.loads(capsys.readouterr().out)


def test_a_look_at_this_machine(capsys, tmp_path):
    result = call(
        capsys,
        ports=[{"port": 0, "netdev": "lo", "rail": 0}, {"port": 1, "netdev": "no-such-netdev"}],
        management_interface="lo",
        management_address="127.0.0.1",
        data_path=str(tmp_path / "data"),
        tools=["sh"],
        expected_architectures=[],
        expected_os=[],
        min_python="3.8",
        legs=[{"subnet": "127.0.9.0/24", "rail": 0, "ends": [{"node": "a", "port": 0}, {"node": "b", "port": 1}]}],
    )
    ok = {check["id"]: check["ok"] for check in result["checks"]}
    assert [ok[f"preflight.{name}"] for name in ("python", "tools", "data_path")] == [True] * 3
    assert [check["ok"] for check in result["checks"] if check["id"] == "preflight.port"] == [True, False]
    assert "preflight.os" not in ok
    (overlap,) = [check for check in result["checks"] if check["id"] == "preflight.overlap"]
    assert overlap["ok"] is True  # lo is one of the ports here
    assert abs(result["facts"]["epoch"] - time.time()) < 60
    assert result["facts"]["memtotal_kib"] > 0
    assert result["changed"] is False
    assert result["facts"]["platform"]["page_size"] == os.sysconf("SC_PAGE_SIZE")
    assert {"platform.kho", "platform.driver", "platform.stale_engine", "rdma.nccl_conf"} <= set(ok)


def test_the_channels_are_those_of_the_other_nodes(capsys, monkeypatch):
    options = {"management_interface": "enP7s7", "management_address": "192.0.2.11", "udp_ports": [7872, 7873]}
    given = {**options, "peers": ["192.0.2.11", "192.0.2.12"]}
    assert [(leg.netdev, leg.subnet, leg.udp) for leg in preflight_check.channels(given)] == [
        ("enP7s7", "192.0.2.12/32", 7872),
        ("enP7s7", "192.0.2.12/32", 7873),
    ]
    assert preflight_check.channels({**given, "management_interface": ""}) == ()
    ruleset = [{"chain": {"family": "inet", "table": "f", "name": "in", "hook": "input", "policy": "drop"}}]
    monkeypatch.setattr(preflight_check.platform_look, "_ruleset", lambda: ruleset)
    result = call(capsys, **given, ports=[])
    assert [
        check["severity"] for check in result["checks"] if check["id"] == "platform.channels" and not check["ok"]
    ] == ["warning"]


def test_expectations_of_the_platform_can_be_left_out(capsys):
    result = call(capsys, driver_pairs={}, time_sync=False, swap="unmanaged", page_sizes=[1])
    ok = {check["id"]: check["ok"] for check in result["checks"]}
    assert not {"platform.driver", "platform.time_sync", "platform.swap"} & set(ok)
    assert ok["platform.page_size"] is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_python": "three"}, "spark1: min_python is 'three'"),
        ({"ports": [{"port": 0, "netdev": "lo"}, {"netdev": "x"}]}, "port or netdev missing in entry 1"),
        ({"legs": [{"rail": 0}]}, "legs: 'subnet' in an entry is not usable; use the filter gb10.ring.fabric_legs"),
    ],
)
def test_options_that_cannot_be_used(capsys, options, said):
    assert said in call(capsys, **options)["msg"]
