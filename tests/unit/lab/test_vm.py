# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.lab import cabling, cli, keys, nodes, procs, store, vm, vm_image
from ansible_collections.gb10.ring.lab.instance import Instance, LabError

LAB = Instance("test", Path("/srv/gb10"))
IMAGE = Path("/srv/gb10/.lab/base/x/vm-y")


def netdevs(argv: list[str]) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == "-netdev"]


def devices(argv: list[str]) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == "-device" and "netdev=" in argv[index + 1]]


def test_each_leg_is_one_socket_with_a_listener_and_a_caller() -> None:
    first, second = (netdevs(vm.qemu_argv(LAB, number, IMAGE))[1:] for number in vm.NUMBERS)
    assert [word.replace("server=on", "server=off") for word in first] == second
    paths = [re.search(r"addr\.path=(\S+)", word)[1] for word in first]
    assert paths == ["/srv/gb10/.lab/test/run/leg0", "/srv/gb10/.lab/test/run/leg1"]
    assert all("server=on" in word for word in first)


def test_a_long_checkout_keeps_its_sockets_short() -> None:
    deep = Instance("test", Path("/srv") / ("x" * 90))
    assert all(len(str(leg.socket)) < 107 for leg in vm.legs(deep))


def test_every_netdev_has_a_mac_of_its_own_and_fabric_ports_carry_jumbo_frames() -> None:
    found = [word for number in vm.NUMBERS for word in devices(vm.qemu_argv(LAB, number, IMAGE))]
    macs = [re.search(r"mac=([0-9a-f:]+)", word)[1] for word in found]
    assert len(set(macs)) == len(macs) == 6
    assert ["host_mtu=9000" in word for word in found] == ["leg" in word for word in found]


def test_no_virtualisation_of_the_machine_is_asked_for() -> None:
    argv = vm.qemu_argv(LAB, 1, IMAGE)
    assert argv[argv.index("-accel") + 1] == "tcg"


def test_leftovers_find_the_machine_by_its_folder() -> None:
    assert any(f"{LAB.directory}/" in word for word in vm.qemu_argv(LAB, 2, IMAGE))


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, tuple[str, int]]:
    lab = Instance("test", tmp_path)
    lab.keys.mkdir(parents=True)
    for path in (keys.host_key(lab, "spark2"), lab.keys / keys.CLIENT):
        path.write_text("key\n")
        path.with_name(path.name + ".pub").write_text("public\n")
    return vm.identity(lab, 2)


def test_the_management_netdev_is_matched_by_mac_and_named(files: dict[str, tuple[str, int]]) -> None:
    text, mode = files["etc/netplan/01-management.yaml"]
    assert mode == 0o600
    assert yaml.safe_load(text)["network"]["ethernets"] == {
        "management": {
            "match": {"macaddress": "4c:bb:47:02:00:ff"},
            "set-name": "enP7s7",
            "dhcp4": False,
            "link-local": [],
            "addresses": ["198.18.0.2/24"],
        }
    }


@pytest.mark.parametrize(("netdev", "rail"), [("enp1s0f0np0", 0), ("enP2p1s0f0np0", 1)])
def test_fabric_ports_get_their_hardware_names(files: dict[str, tuple[str, int]], netdev: str, rail: int) -> None:
    text, _mode = files[f"etc/systemd/network/70-gb10-lab-{netdev}.link"]
    assert f"PermanentMACAddress={cabling.mac(2, 0, rail)}\n" in text
    assert f"Name={netdev}\n" in text


def test_a_machine_boots_with_swap(files: dict[str, tuple[str, int]]) -> None:
    assert files["etc/fstab"][0].split() == ["/swap.img", "none", "swap", "sw", "0", "0"]


def test_files_replace_what_the_image_holds(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "etc/hostname").symlink_to("/etc/hostname")  # of this machine: it must not be followed
    nodes.write_files(tmp_path, {"etc/hostname": ("spark1\n", 0o644), "root/.ssh/authorized_keys": ("key\n", 0o600)})
    assert (tmp_path / "etc/hostname").read_text() == "spark1\n"
    assert not (tmp_path / "etc/hostname").is_symlink()
    assert (tmp_path / "root/.ssh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "root/.ssh/authorized_keys").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("node", "number"), [("spark1", 1), ("spark2", 2)])
def test_machines_have_the_names_of_nodes(node: str, number: int) -> None:
    assert vm.number_of(node) == number


@pytest.mark.parametrize("node", ["spark3", "", "vm1"])
def test_an_unknown_machine_is_refused(node: str) -> None:
    with pytest.raises(LabError, match="one of spark1, spark2 is expected"):
        vm.number_of(node)


def test_nodes_are_refused_while_machines_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "process", lambda instance, number: procs.Process(1, 1) if number == 2 else None)
    with pytest.raises(LabError, match="runs virtual machines: `lab/ctl --instance test vm down` first"):
        vm.refuse(LAB)


def test_machines_are_refused_while_nodes_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lab = Instance("test", tmp_path)
    monkeypatch.setattr(store, "exists", lambda _instance: True)
    monkeypatch.setattr(vm.base, "ensure", lambda _instance: tmp_path)
    monkeypatch.setattr(vm.vm_image, "ensure", lambda _instance, _built: tmp_path)
    monkeypatch.setattr(vm.keys, "ensure", lambda _instance: None)
    with pytest.raises(LabError, match="runs nodes in namespaces, which have the same names"):
        vm.up(lab)
    with pytest.raises(LabError, match="no virtual machines: `lab/ctl --instance test down`"):
        vm.down(lab)


def test_a_machine_that_does_not_run_gets_no_session(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="spark1 does not run: `lab/ctl --instance test vm up` starts it"):
        vm.ssh(Instance("test", tmp_path), "spark1")


def test_status_of_machines_that_are_off(tmp_path: Path) -> None:
    lab = Instance("test", tmp_path)
    assert [row["running"] for row in vm.status(lab)] == [False, False]
    assert vm.status_text(lab).splitlines()[0].split() == ["spark1", "198.18.0.1", "off"]


def test_only_known_architectures_are_tried() -> None:
    assert vm_image.architecture("x86_64") == "amd64"
    with pytest.raises(LabError, match="need x86_64, and this is aarch64"):
        vm_image.architecture("aarch64")


def test_the_image_has_a_kernel_with_rdma_and_a_device_for_each_cabled_port() -> None:
    text = vm_image.script("amd64")
    assert " linux-image-amd64 " in text
    assert "gb10-lab-rxe@enp1s0f0np0.service gb10-lab-rxe@enP2p1s0f0np0.service" in text
    assert vm_image.recipe("amd64") == vm_image.recipe("amd64")
    assert vm_image.recipe("amd64") != vm_image.recipe("arm64")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["vm", "up"], {"action": "up", "timeout": 420.0}),
        (["vm", "up", "--timeout", "60"], {"timeout": 60.0}),
        (["vm", "down"], {"action": "down"}),
        (["vm", "status", "--json"], {"action": "status", "json": True}),
        (["vm", "exec", "spark1", "--", "ip", "-br", "a"], {"command": ["spark1", "--", "ip", "-br", "a"]}),
        (["vm", "exec", "--", "ls", "-l"], {"command": ["--", "ls", "-l"]}),
        (["vm", "ssh", "spark1", "ip", "-br", "a"], {"node": "spark1", "command": ["ip", "-br", "a"]}),
    ],
)
def test_command_lines(argv: list[str], expected: dict[str, object]) -> None:
    options = vars(cli.parser().parse_args(argv))
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["spark1", "--", "sh", "-c", "echo a b"], "sh -c 'echo a b'"),
        (["spark1", "uname", "-r"], "uname -r"),
    ],
)
def test_exec_keeps_the_words_of_a_command(monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str) -> None:
    replaced: list[list[str]] = []
    monkeypatch.setattr(vm, "ssh", lambda _instance, node: ["ssh", node])
    monkeypatch.setattr(cli, "_replace", lambda argv, _environment: replaced.append(argv))
    options = cli.parser().parse_args(["vm", "exec", *words])
    assert options.handler(LAB, options) is None
    assert replaced == [["ssh", "spark1", expected]]


@pytest.mark.parametrize("words", [[], ["spark1"], ["spark1", "--"]])
def test_exec_without_a_command_is_refused(words: list[str]) -> None:
    options = cli.parser().parse_args(["vm", "exec", *words])
    with pytest.raises(LabError, match="a command is expected behind '--'"):
        options.handler(LAB, options)


@pytest.mark.parametrize(
    "line", ['DEF_MIRROR="http://mirror.example/debian"', "DEF_MIRROR=http://mirror.example/debian"]
)
def test_the_mirror_is_debootstraps_own_when_the_machine_names_none(line):
    assert vm_image.default_mirror(f"#!/bin/sh\n{line}\nMIRRORS=\n") == "http://mirror.example/debian"


def test_a_debootstrap_without_a_mirror_is_told_with_the_cure():
    with pytest.raises(LabError, match="LAB_DEBIAN_MIRROR"):
        vm_image.default_mirror("#!/bin/sh\n")
