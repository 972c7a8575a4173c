"""The verify ladder of the fabric on the lab: all is well, then one fault after another, each found and named and nothing else.

Runs inside the controller namespace of a freshly booted lab of three (`lab/ctl exec -- pytest tests/lab/test_ladder.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from site_run import CHECKOUT, INVENTORY, NODES, on

PLAN = "/etc/netplan/60-gb10-ring.yaml"
QUICK = {"verify_roles": ["fabric"], "fabric_check_timeout": 3, "fabric_verify_cabling": False}
STAND_IN = CHECKOUT / "tests" / "lab" / "ib_write_bw_stand_in.py"


def playbook(name: str, *extra: str, **variables: Any) -> tuple[int, str]:
    done = subprocess.run(
        [
            "ansible-playbook",
            f"playbooks/{name}.yml",
            "-i",
            INVENTORY / "ring.yml",
            *extra,
            "-e",
            json.dumps(variables),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def fabric() -> None:
    code, output = playbook("fabric")
    assert code == 0, output


def run_verify(folder: Path, *extra: str, **variables: Any) -> list[dict[str, Any]]:
    """The checks of verify.yml for the fabric alone."""
    path = folder / "report.json"
    path.unlink(missing_ok=True)
    _code, output = playbook("verify", *extra, verify_report_path=str(path), **{**QUICK, **variables})
    assert path.exists(), output
    checks: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["checks"]
    return checks


def bad(checks: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(check["node"], check["id"].removeprefix("fabric.")) for check in checks if not check["ok"]}


def test_all_is_well(tmp_path):
    checks = run_verify(tmp_path, fabric_verify_cabling=True, fabric_check_timeout=15)
    assert bad(checks) == set()
    each_leg = {"presence", "pcie", "carrier", "flaps", "speed", "address", "mtu", "route", "ping", "gid", "active_mtu"}
    for node in NODES:
        ids = [check["id"].removeprefix("fabric.") for check in checks if check["node"] == node]
        assert all(ids.count(rung) == 4 for rung in each_leg)
        assert {"subnet", "firmware", "cabling"} <= set(ids)


@dataclass(frozen=True)
class Fault:
    """Made and undone by shell commands on a node. found: what that node's check of the rung says; beside: what else fails from it."""

    node: str
    rung: str
    make: str
    undo: str
    found: str
    beside: tuple[tuple[str, str], ...] = ()


FIRMWARE = "for device in /sys/class/infiniband/*; do echo {version} >$device/fw_ver; done"
# On legs that do not meet, so that one run shows all of them and what follows from each.
FAULTS = (
    Fault(
        *("spark2", "mtu"),
        make="ip link set enp1s0f1np1 mtu 1500",
        undo="ip link set enp1s0f1np1 mtu 9000",
        found="1500 bytes on enp1s0f1np1 (port 1, rail 0, 198.19.0.0/24 to spark1)",
        beside=(("spark1", "ping"),),
    ),
    Fault(
        *("spark3", "address"),
        make="ip addr del 198.19.5.3/24 dev enP2p1s0f0np0",
        undo="ip addr add 198.19.5.3/24 dev enP2p1s0f0np0",
        found="no IPv4 address on enP2p1s0f0np0 (port 0, rail 1, 198.19.5.0/24 to spark1)",
        beside=(("spark1", "ping"),),
    ),
    Fault(
        *("spark2", "subnet"),
        make="ip addr add 198.19.2.77/24 dev enP2p1s0f0np0",
        undo="ip addr del 198.19.2.77/24 dev enP2p1s0f0np0",
        found="198.19.2.77/24 on enP2p1s0f0np0 and 198.19.2.2/24 on enp1s0f0np0",
        beside=(("spark2", "address"),),
    ),
    Fault(
        *("spark1", "route"),
        make="ip route add 198.19.1.2/32 via 198.18.0.254",
        undo="ip route del 198.19.1.2/32",
        found="198.19.1.2 of spark2 goes by enP7s7 via 198.18.0.254 from 198.18.0.1",
        beside=(("spark2", "ping"),),  # its answers take that way, too
    ),
    Fault(
        *("spark3", "firmware"),
        make=FIRMWARE.format(version="28.47.1026"),
        undo=FIRMWARE.format(version="28.45.4028"),
        found="28.47.1026",
    ),
)


@pytest.fixture(scope="module")
def with_all_faults() -> list[dict[str, Any]]:
    """The checks of one run with every fault at once."""
    for fault in FAULTS:
        on(fault.node, fault.make)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return run_verify(Path(folder))
    finally:
        for fault in FAULTS:
            on(fault.node, fault.undo)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.rung)
def test_a_fault_is_found_and_named(with_all_faults, fault):
    wanted = (fault.node, f"fabric.{fault.rung}")
    found = [check["found"] for check in with_all_faults if (check["node"], check["id"]) == wanted and not check["ok"]]
    assert fault.found in found


def test_nothing_else_fails(with_all_faults):
    expected = {(fault.node, fault.rung) for fault in FAULTS} | {beside for fault in FAULTS for beside in fault.beside}
    assert bad(with_all_faults) == expected


@pytest.mark.parametrize(("keeps", "expected"), [(True, set()), (False, {"presence", "carrier", "address", "mtu"})])
def test_a_reboot_shows_what_was_not_kept(tmp_path, keeps, expected):
    boot = on("spark2", "cat /proc/sys/kernel/random/boot_id")
    if not keeps:
        on("spark2", f"mv {PLAN} /root/kept.yaml")
    try:
        checks = run_verify(tmp_path, "--limit", "spark2", fabric_verify_reboot=True, fabric_check_timeout=8)
        assert on("spark2", "cat /proc/sys/kernel/random/boot_id") != boot
    finally:
        if not keeps:
            on("spark2", f"mv /root/kept.yaml {PLAN} && netplan apply")
    found = {rung for _node, rung in bad(checks)}
    assert found <= expected
    assert bool(found) is not keeps


@pytest.fixture
def stand_in() -> Iterator[None]:
    """A stand-in for ib_write_bw on every node: the connections are real, the numbers are those of /run/gbps."""
    path = "/usr/local/bin/ib_write_bw"
    text = "#!/usr/bin/python3\n" + STAND_IN.read_text(encoding="utf-8")
    for node in NODES:
        on(node, f"cat >{path} <<'X'\n{text}\nX\nchmod 755 {path}; echo 95.5 >/run/gbps")
    yield
    for node in NODES:
        on(node, f"rm {path} /run/gbps")


def test_bandwidth_is_measured_from_every_node(tmp_path, stand_in):
    on("spark2", "echo 13.1 >/run/gbps")
    checks = run_verify(tmp_path, fabric_bandwidth=True, fabric_bandwidth_duration=1)
    assert bad(checks) == {("spark2", "bandwidth"), ("spark2", "bandwidth_sum")}
    assert sum(check["id"] == "fabric.bandwidth" for check in checks) == 4 * len(NODES)
    assert sum(check["id"] == "fabric.bandwidth_sum" for check in checks) == 2 * len(NODES)
    slow = [check["found"] for check in checks if check["id"] == "fabric.bandwidth" and not check["ok"]]
    assert all("13.10 Gb/s" in found and "started up degraded" in found for found in slow)
    for node in NODES:
        assert on(node, "systemctl list-units --all --no-legend 'gb10-ring-bandwidth-*' | wc -l") == "0"
