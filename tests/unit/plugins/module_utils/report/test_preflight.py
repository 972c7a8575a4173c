from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.preflight import (
    Expected,
    FileSystem,
    MachineFacts,
    PlannedPort,
    checks,
    clock,
    not_run,
    release,
    ssh_command,
    system,
    system_title,
    unreachable,
    version,
)
from ansible_collections.gb10.ring.plugins.module_utils.topology.overlap import Held, PlannedLeg

RELEASES = Path(__file__).parents[3] / "fixtures/release"
UBUNTU, TRIXIE, BOOKWORM, DGX = (
    (RELEASES / name).read_text() for name in ("ubuntu-24.04", "debian-13", "debian-12", "dgx-spark")
)

HELD = (
    Held(("enP7s7",), IPv4Network("192.0.2.0/24"), "192.0.2.11/24 on enP7s7"),
    Held(("enp1s0f0np0",), IPv4Network("10.100.0.0/24"), "10.100.0.9/24 on enp1s0f0np0"),
    Held(("enp9s0",), IPv4Network("10.100.1.0/24"), "10.100.1.9/24 on enp9s0"),
)
SPARK = MachineFacts(
    os_release=UBUNTU,
    dgx_release=DGX,
    architecture="aarch64",
    kernel="6.17.0-1031-nvidia",
    python=(3, 12, 3),
    pid1="systemd",
    euid=0,
    missing_tools=(),
    netplan="1.1.2-2~ubuntu24.04.1",
    netdevs=("enP2p1s0f0np0", "enP7s7", "enp1s0f0np0", "lo"),
    addresses={"lo": ("127.0.0.1",), "enP7s7": ("192.0.2.11",)},
    file_system=FileSystem("/var/lib", 1_000_000_000_000, 5_000_000, read_only=False),
    held=HELD,
    own_netdevs=frozenset({"enp9s0"}),
)
EXPECTED = Expected(
    node="spark1",
    systems=("ubuntu 24.04", "debian 13"),
    ports=(PlannedPort(0, "enp1s0f0np0"), PlannedPort(0, "enP2p1s0f0np0")),
    management_interface="enP7s7",
    management_address="192.0.2.11",
    legs=tuple(PlannedLeg(IPv4Network(f"10.100.{number}.0/24"), f"leg {number}") for number in (0, 1)),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(UBUNTU, "ubuntu 24.04"), (TRIXIE, "debian 13"), (BOOKWORM, "debian 12"), ("", "unknown"), ("ID=arch\n", "arch")],
)
def test_system(text, expected):
    assert system(text) == expected


@pytest.mark.parametrize(
    ("os_release", "dgx_release", "title"),
    [
        (UBUNTU, DGX, "Ubuntu 24.04.3 LTS, NVIDIA DGX Spark 7.5.0"),
        (UBUNTU, DGX.split("\n\n", maxsplit=1)[0], "Ubuntu 24.04.3 LTS, NVIDIA DGX Spark 7.2.3"),
        (UBUNTU, "DGX_PRETTY_NAME=NVIDIA DGX Spark\n", "Ubuntu 24.04.3 LTS, NVIDIA DGX Spark"),  # HP writes no quotes
        (TRIXIE, "", "Debian GNU/Linux 13 (trixie)"),
        ("", "", "unknown"),
    ],
)
def test_system_title(os_release, dgx_release, title):
    assert system_title(os_release, dgx_release) == title


@pytest.mark.parametrize(
    ("text", "fields"),
    [("A=\"x y\"\nB='z'\nC=w\n# D=1\n=2\n", {"A": "x y", "B": "z", "C": "w"}), ("", {})],
)
def test_release(text, fields):
    assert release(text) == fields


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.106-2+deb12u1", (0, 106)),
        ("1.1.2-7", (1, 1, 2)),
        ("1.1.2-2~ubuntu24.04.1", (1, 1, 2)),
        ("2:1.0-1", (1, 0)),
        ("3.10", (3, 10)),
        ("", ()),
        ("unknown", ()),
    ],
)
def test_version(text, numbers):
    assert version(text) == numbers


def test_a_spark_passes_everything():
    found = checks(SPARK, EXPECTED)
    assert [check.id for check in found if not check.ok] == []
    assert [check.id.removeprefix("preflight.") for check in found] == [
        "os",
        "architecture",
        "python",
        "systemd",
        "privileges",
        "tools",
        "netplan",
        "port",
        "management",
        "overlap",
        "data_path",
    ]


@pytest.mark.parametrize(
    ("facts", "bad", "said"),
    [
        ({"os_release": BOOKWORM, "dgx_release": ""}, "os", "debian 12 (Debian GNU/Linux 12 (bookworm))"),
        ({"os_release": ""}, "os", "unknown"),
        ({"architecture": "x86_64"}, "architecture", "x86_64"),
        ({"python": (3, 9, 2)}, "python", "3.9.2"),
        ({"pid1": "init"}, "systemd", "process 1 is init"),
        ({"pid1": ""}, "systemd", "process 1 is unknown"),
        ({"euid": 1000}, "privileges", "user id 1000"),
        ({"missing_tools": ("ping", "ip")}, "tools", "not on PATH: ping, ip"),
        ({"netplan": "0.106-2+deb12u1"}, "netplan", "0.106-2+deb12u1"),
        ({"netplan": ""}, "netplan", "no netplan.io package"),
        ({"netdevs": ("lo", "enP7s7")}, "port", "port 0: enp1s0f0np0, enP2p1s0f0np0 absent"),
        ({"netdevs": ("enp1s0f0np0", "enP7s7")}, "port", "port 0: enP2p1s0f0np0 absent"),
        ({"addresses": {"enP7s7": ()}}, "management", "enP7s7 with no IPv4 address"),
        ({"addresses": {}}, "management", "enP7s7 with no IPv4 address"),
        ({"addresses": {"enP7s7": ("192.0.2.12",)}}, "management", "enP7s7 with 192.0.2.12"),
        ({"addresses": {"wlP9s9": ("192.0.2.11",)}}, "management", "192.0.2.11 on wlP9s9"),
        (
            {"addresses": {"wlP9s9": ("192.0.2.11",), "enP7s7": ("192.0.2.11",)}},
            "management",
            "192.0.2.11 on wlP9s9, enP7s7",
        ),
        ({"addresses": None}, "management", "addresses unknown"),
        ({"own_netdevs": frozenset()}, "overlap", "10.100.1.9/24 on enp9s0 overlaps 10.100.1.0/24 (leg 1)"),
        ({"held": None}, "overlap", "addresses and routes unknown"),
        ({"file_system": None, "file_system_error": "cannot read /x: Input/output error"}, "data_path", "Input/output"),
        ({"file_system": None}, "data_path", "unreadable"),
        (
            {"file_system": FileSystem("/var", 5, None, read_only=True)},
            "data_path",
            "/var: 0.0 GB free, mounted read-only",
        ),
        ({"file_system": FileSystem("/var", 5, 999, read_only=False)}, "data_path", "999 inodes free"),
    ],
)
def test_one_thing_wrong_fails_one_check(facts, bad, said):
    failed = [check for check in checks(replace(SPARK, **facts), EXPECTED) if not check.ok]
    assert [check.id for check in failed] == [f"preflight.{bad}"]
    assert said in failed[0].found
    assert (failed[0].node, failed[0].severity) == ("spark1", "error")
    assert failed[0].cure
    assert failed[0].expected


def test_everything_wrong_fails_everything():
    worst = MachineFacts("", "", "riscv64", "", (3, 8, 0), "", 1000, ("ip",), "", (), None, None, held=None)
    found = checks(worst, EXPECTED)
    assert all(not check.ok for check in found)
    assert len(found) == len(checks(SPARK, EXPECTED))


def test_the_management_interface_that_is_not_there():
    facts = replace(SPARK, netdevs=("enp1s0f0np0", "enP2p1s0f0np0", "eth0"), addresses={"eth0": ("192.0.2.99",)})
    (check,) = [check for check in checks(facts, EXPECTED) if not check.ok]
    assert check.found == "no netdev enP7s7; there are enP2p1s0f0np0, enp1s0f0np0, eth0"


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({"systems": ()}, "preflight.os"),
        ({"architectures": ()}, "preflight.architecture"),
        ({"ports": ()}, "preflight.port"),
        ({"management_address": ""}, "preflight.management"),
        ({"management_interface": ""}, "preflight.management"),
        ({"legs": ()}, "preflight.overlap"),
    ],
)
def test_empty_expectations_leave_a_check_out(changes, left_out):
    assert left_out not in [check.id for check in checks(SPARK, replace(EXPECTED, **changes))]


def test_a_check_a_physical_port():
    ports = (*EXPECTED.ports, PlannedPort(1, "enp1s0f1np1"), PlannedPort(1, "enP2p1s0f1np1"))
    found = [check for check in checks(SPARK, replace(EXPECTED, ports=ports)) if check.id == "preflight.port"]
    assert [(check.ok, check.found) for check in found] == [
        (True, "port 0: enp1s0f0np0, enP2p1s0f0np0 present"),
        (False, "port 1: enp1s0f1np1, enP2p1s0f1np1 absent"),
    ]
    assert "cable of port 1" in found[1].cure
    assert "dgx-spark-mlnx-hotplug" in found[1].cure


def test_missing_tools_name_their_packages():
    facts = replace(SPARK, missing_tools=("ip", "ping", "netplan", "nvme"))
    (check,) = [check for check in checks(facts, EXPECTED) if not check.ok]
    assert check.cure == "sudo apt-get install iproute2 iputils-ping netplan.io nvme"


@pytest.mark.parametrize(
    ("found", "ok", "said"),
    [
        (1000.0, True, "0 s"),
        (1005.0, True, "0 s"),
        (970.0, True, "30 s behind"),
        (969.0, False, "31 s behind"),
        (1041.0, False, "31 s ahead of"),
        (0.0, False, "1000 s behind"),
    ],
)
def test_clock(found, ok, said):
    check = clock("spark1", found, 1000.0, 1010.0)
    assert check.ok is ok
    assert check.found.startswith(said)
    assert check.severity == "warning"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("192.0.2.11",), "ssh -v 192.0.2.11 true"),
        (("192.0.2.11", "nvidia", 2222), "ssh -v -p 2222 nvidia@192.0.2.11 true"),
        (("192.0.2.11", "", None), "ssh -v 192.0.2.11 true"),
    ],
)
def test_ssh_command(arguments, command):
    assert ssh_command(*arguments) == command


def test_unreachable_ends_with_the_reason():
    check = unreachable(
        "spark1", "Failed to connect to the host via ssh: banner\n\nPermission denied\n", "ssh -v x true"
    )
    assert check.found == "Failed to connect to the host via ssh: banner; Permission denied"
    assert "ssh -v x true" in check.cure
    assert (check.id, check.ok, check.severity) == ("preflight.reachable", False, "error")


@pytest.mark.parametrize(("missing", "name"), [(True, "preflight.python"), (False, "preflight.module")])
def test_not_run(missing, name):
    check = not_run("spark1", "", interpreter_unusable=missing)
    assert (check.id, check.ok, check.found) == (name, False, "no reason given")
