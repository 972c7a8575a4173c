from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.report import machine

IP = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {
        "ifname": "enP7s7",
        "link": "if3",
        "addr_info": [{"family": "inet", "local": "192.0.2.11", "prefixlen": 24}],
    },
    {"ifname": "enp1s0f0np0", "addr_info": []},
    {},
]


def answer(monkeypatch, outputs):
    """Commands answer by program name; a program without output is not installed."""

    def run(argv, check=True):
        if argv[0] not in outputs:
            raise HostError(f"{argv[0]} is not installed on this machine")
        rc, stdout = outputs[argv[3] if argv[0] == "ip" and argv[3] in outputs else argv[0]]
        return Completed(tuple(argv), rc, stdout, "")

    monkeypatch.setattr(machine, "run", run)


@pytest.fixture
def root(tmp_path):
    for name, text in {
        "etc/os-release": "ID=ubuntu\n",
        "proc/1/comm": "systemd\n",
        "proc/meminfo": "MemTotal: 5 kB\n",
        "proc/sys/kernel/random/boot_id": "1f2e\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "sys/class/net/enP7s7").mkdir(parents=True)
    (tmp_path / "sys/class/net/bonding_masters").write_text("")
    return tmp_path


def test_look(root, monkeypatch):
    (root / machine.OWN_NETPLAN).parent.mkdir(parents=True)
    (root / machine.OWN_NETPLAN).write_text("network:\n  version: 2\n  ethernets:\n    enp1s0f0np0:\n      mtu: 9000\n")
    routes = [{"dst": "default", "dev": "enP7s7"}, {"dst": "10.9.0.0/16", "dev": "enP7s7"}]
    answer(
        monkeypatch,
        {"ip": (0, json.dumps(IP)), "route": (0, json.dumps(routes)), "dpkg-query": (0, "installed 1.1.2-7")},
    )
    facts = machine.look(["sh", "no-such-tool"], str(root / "var/lib/gb10-ring"), root)
    assert (facts.os_release, facts.dgx_release, facts.pid1) == ("ID=ubuntu\n", "", "systemd")
    assert facts.missing_tools == ("no-such-tool",)
    assert facts.netplan == "1.1.2-7"
    assert facts.netdevs == ("enP7s7",)
    assert facts.addresses == {"lo": ("127.0.0.1",), "enP7s7": ("192.0.2.11",), "enp1s0f0np0": ()}
    assert [held.text for held in facts.held or ()] == [
        "127.0.0.1/8 on lo",
        "192.0.2.11/24 on enP7s7",
        "route 10.9.0.0/16 by enP7s7",
    ]
    assert facts.own_netdevs == {"enp1s0f0np0"}
    assert facts.file_system is not None
    assert (facts.file_system.path, facts.file_system_error) == (str(root), "")
    assert (facts.python, facts.euid, facts.architecture) == (sys.version_info[:3], os.geteuid(), os.uname().machine)
    assert machine.boot_id(root) == "1f2e"


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"ip": (0, "no json"), "dpkg-query": (1, "")},
        {"ip": (0, "{"), "dpkg-query": (0, "config-files 0.106-2")},
    ],
)
def test_look_at_a_machine_that_answers_little(tmp_path, monkeypatch, outputs):
    answer(monkeypatch, outputs)
    facts = machine.look([], str(tmp_path), tmp_path)
    assert (facts.addresses, facts.held, facts.netplan, facts.netdevs, facts.pid1) == (None, None, "", (), "")


def test_a_file_system_that_cannot_be_read(tmp_path, monkeypatch):
    def statvfs(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", statvfs)
    answer(monkeypatch, {})
    facts = machine.look([], str(tmp_path), tmp_path)
    assert (facts.file_system, facts.file_system_error) == (None, f"cannot read {tmp_path}: Input/output error")


@pytest.mark.parametrize(
    ("flag", "files", "found"),
    [(0, 10, (False, 7)), (os.ST_RDONLY, 10, (True, 7)), (0, 0, (False, None))],
)
def test_file_system(tmp_path, monkeypatch, flag, files, found):
    held = SimpleNamespace(f_flag=flag, f_files=files, f_favail=7, f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: held)
    answer(monkeypatch, {})
    file_system = machine.look([], str(tmp_path), tmp_path).file_system
    assert (file_system.read_only, file_system.free_inodes) == found
    assert file_system.free_bytes == 12288
