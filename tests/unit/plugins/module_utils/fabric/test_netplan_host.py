# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a machine, and netplan's judgement on a copy, with stand-ins for the programs."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import before, netplan_host, netplan_yaml
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import Refusal
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link

NAME = "/etc/netplan/60-gb10-ring.yaml"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.links(link("enp1s0f0np0", "10.100.0.1/24"), link("enP7s7", "198.51.100.1/24"))
    for name in ("netplan", "networkctl"):
        stand_ins.script(name, "exit 0")
    for name in ("nmcli", "rdma"):
        stand_ins.script(name, "echo not running >&2; exit 8")
    stand_ins.script("systemctl", "echo inactive; exit 3")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return stand_ins


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "etc/netplan").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "name", ["/etc/netplan/60-x.conf", "/etc/60-x.yaml", "60-x.yaml", "/etc/netplan/../x.yaml", "/etc/netplan/a/b.yaml"]
)
def test_only_a_file_that_netplan_reads(name):
    with pytest.raises(HostError, match=r"path is '.*', expected a file directly in /etc/netplan"):
        netplan_host.locate(name)


def test_locate():
    assert netplan_host.locate(NAME) == NAME


def test_ip_that_prints_no_json(commands):
    commands.script("ip", "echo nothing useful")
    with pytest.raises(HostError, match="ip -j addr: not the JSON that was expected"):
        netplan_host.read_links()


def test_files_of_all_folders_are_read(commands, root):
    texts = {
        "etc/netplan/01-management.yaml": b"a\n",
        "run/netplan/02-x.yaml": b"b \xff\n",
        "usr/lib/netplan/generate": b"not a configuration\n",
        "etc/NetworkManager/system-connections/cx7.nmconnection": b"c\n",
        "run/NetworkManager/system-connections/netplan-enp1s0f0np0.nmconnection": b"generated\n",
        "run/systemd/network/10-netplan-cx7.link": b"[Link]\n",
        "run/systemd/network/10-netplan-cx7.network": b"[Network]\n",
        f"{before.FOLDER.lstrip('/')}/record.json": b"{}\n",
        f"{before.FOLDER.lstrip('/')}/etc/netplan/40-cx7.yaml": b"d\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
        (root / name).chmod(0o640)
    found = netplan_host.read_machine(root, "enP7s7")
    assert found.netplan_files() == {"/etc/netplan/01-management.yaml": "a\n", "/run/netplan/02-x.yaml": "b \udcff\n"}
    assert list(found.profiles()) == ["/etc/NetworkManager/system-connections/cx7.nmconnection"]
    assert found.stats["/etc/netplan/01-management.yaml"][0] == 0o640
    assert found.link_files == {"/run/systemd/network/10-netplan-cx7.link": "[Link]\n"}
    assert found.record == "{}\n"
    assert found.originals[before.copy_path("/etc/netplan/40-cx7.yaml")] == "d\n"
    assert list(found.links) == ["enp1s0f0np0", "enP7s7"]
    assert [netdev.name for netdev in found.netdevs] == ["enp1s0f0np0", "enP7s7"]
    assert (found.management, found.serving) == (("enP7s7",), ())


def test_the_permanent_address_of_a_bonded_port(commands, root):
    commands.links({**link("enp1s0f0np0"), "permaddr": "4C:BB:47:01:00:00"})
    assert netplan_host.read_machine(root, "enP7s7").netdevs[0].macs[-1:] == ("4c:bb:47:01:00:00",)


def test_who_manages_and_who_serves(commands, root):
    commands.script(
        "nmcli", "echo 'enp1s0f0np0:connecting (getting IP configuration)'; echo 'lo:connected (externally)'"
    )
    commands.script("networkctl", "echo '  2 enP7s7 ether routable configured'; echo noise")
    commands.script("rdma", """echo '[{"type":"RC","pid":7,"comm":"vllm"}]'""")
    commands.script("systemctl", "echo active")
    found = netplan_host.read_machine(root, "absent0")
    assert found.managers.of("enp1s0f0np0") == "NetworkManager"
    assert found.managers.of("enP7s7") == "networkd"
    assert found.serving == ("gb10-ring-engine.service is active", "process 7 (vllm) holds RDMA queue pairs")
    assert found.management == ()


def test_management_is_what_carries_the_session_and_the_default_route(commands, root, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.9 50000 198.51.100.1 22")
    addresses = (commands.folder / "links.json").read_text()
    commands.script(
        "ip",
        f"""case "$*" in
        "-j addr") echo '{addresses}';;
        "-o addr show to 198.51.100.1") echo '2: enP7s7    inet 198.51.100.1/24 scope global enP7s7';;
        "-o -4 route show default") echo 'default via 198.51.100.254 dev enp1s0f0np0 proto static';;
        esac""",
    )
    assert netplan_host.read_machine(root, "enP9s9").management == ("enp1s0f0np0", "enP7s7")


def test_without_a_yaml_parser(commands, root, monkeypatch):
    monkeypatch.setattr(netplan_yaml, "HAS_YAML", False)
    with pytest.raises(HostError, match="python3-yaml is not installed"):
        netplan_host.read_machine(root, "enP7s7")


def test_netplan_judges_a_copy(commands, root, tmp_path):
    """netplan gets the files in its three folders, closed to others."""
    commands.script(
        "netplan", f"cp -a $3 {tmp_path}/seen; (cd $3 && find . -type f -printf '%m %P\\n' | sort) >{tmp_path}/list"
    )
    assert (
        netplan_host.judge({NAME: "new\n", "/run/netplan/02-x.yaml": "b\n", "/usr/lib/netplan/03-y.yaml": "c\n"})
        is None
    )
    assert (tmp_path / "list").read_text().splitlines() == [
        "600 etc/netplan/60-gb10-ring.yaml",
        "600 run/netplan/02-x.yaml",
        "600 usr/lib/netplan/03-y.yaml",
    ]
    assert (tmp_path / "seen/lib/netplan/03-y.yaml").read_text() == "c\n"
    (copy,) = [call.split()[-1] for call in commands.calls("netplan")]
    assert not (tmp_path / copy).exists()


def test_netplan_names_the_broken_file(commands):
    commands.script("netplan", 'echo "$3/etc/netplan/10-x.yaml:3:1: Invalid YAML: tabs are not allowed" >&2; exit 1')
    assert netplan_host.judge({NAME: "new\n"}) == Refusal(
        "/etc/netplan/10-x.yaml", "3", "Invalid YAML: tabs are not allowed"
    )
