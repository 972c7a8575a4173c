# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changing the network of a lab of three without losing a node. Runs inside the controller namespace of a freshly booted lab.

The tests build on each other's lab, in file order: nodes with NVIDIA's old file, every fault, then the change, drift, and the way back.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from site_run import CHECKOUT, INVENTORY, NODES, ctl, on

OLD = """\
# NVIDIA's plan (connect-three-sparks README), from before; half of it written otherwise
network:
  version: 2
  ethernets:
    enp1s0f0np0:
      dhcp4: false
      addresses: [192.168.{out}.1/24]
    rail1:
      match:
        name: enP2p1s0f0*
      set-name: enP2p1s0f0np0
      addresses: [192.168.{out1}.1/24]
    enp1s0f1np1:
      addresses: [192.168.{back}.2/24]
    enP2p1s0f1np1:
      addresses: [192.168.{back1}.2/24]
  vlans:
    lan7: {{id: 7, link: enp1s0f1np1}}
"""
CX7 = "/etc/netplan/40-cx7.yaml"
OURS = "/etc/netplan/60-gb10-ring.yaml"
LINK_FILE = "/run/systemd/network/10-netplan-enP2p1s0f0np0.link"  # what netplan 1.1 makes of our entry
NAMED = """\
[Match]
OriginalName=enP2p1s0f0*

[Link]
Name=enP2p1s0f0np0
WakeOnLan=off
MTUBytes=9000"""
PORTS = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")
LOOK = "ip -br addr | grep ^en; ip -o link | grep -o ' en[^:@]*\\|mtu [0-9]*'; ip route; md5sum /etc/netplan/*"
ARMED = (
    "systemctl list-units --all --no-legend 'gb10-ring-fabric*'; ls -d /var/lib/gb10-ring/network-rollback "
    "/etc/systemd/system/*gb10-ring-fabric* /etc/systemd/system/*/*gb10-ring-fabric* 2>/dev/null; true"
)
QUICK = {"fabric_check_timeout": 3}  # how long a neighbour that never answers is asked


def argv(book: str, variables: dict[str, object], *extra: str) -> list[str]:
    return ["ansible-playbook", book, "-i", str(INVENTORY / "ring.yml"), "-e", json.dumps(variables), *extra]


def change(
    variables: dict[str, object] | None = None, *extra: str, book: str = "tests/lab/fabric_change.yml"
) -> tuple[int, str]:
    """Exit status and output of a run."""
    done = subprocess.run(
        argv(book, {**QUICK, **(variables or {})}, *extra),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def running(variables: dict[str, object]) -> Iterator[subprocess.Popen[str]]:
    """A run in a process group of its own, in the block from when every node is armed."""
    process = subprocess.Popen(
        argv("tests/lab/fabric_change.yml", variables),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        start_new_session=True,
    )
    try:
        waited = time.monotonic() + 60
        while not all("network-rollback" in on(node, ARMED) for node in NODES):
            assert time.monotonic() < waited, "the nodes were not armed within 60 s"
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def network() -> list[str]:
    """Addresses, MTU, routes and netplan files of every node; link-local addresses come and go with carrier."""
    noise = re.compile(r"fe80\S+|@if\d+| (?= )| $")
    return [f"{node}: {noise.sub('', line)}" for node in NODES for line in on(node, LOOK).splitlines()]


def assert_as_before(before: list[str], since: float, limit: float = 60.0) -> None:
    """Within ``limit`` seconds of ``since`` every node has its old network, nothing is armed, and on it answers each node and its neighbour."""
    while True:
        difference = [
            line for line in difflib.unified_diff(before, network(), n=0, lineterm="") if line[1:2] not in "+-@"
        ]
        armed = [line for node in NODES for line in on(node, ARMED).splitlines()]
        if not difference and not armed:
            break
        assert time.monotonic() < since + limit, "\n".join([*armed, *difference])
        time.sleep(0.5)
    for number, node in enumerate(NODES):  # a ping that gets no reply fails
        on(node, f"ping -q -c 3 -i 0.2 -W 2 -I enp1s0f0np0 192.168.{2 * number}.2")
        subprocess.run(["ping", "-q", "-c", "3", "-i", "0.2", "-W", "2", f"198.18.0.{number + 1}"], check=True)


def diffs(output: str) -> dict[str, list[str]]:
    """node -> its diffs, from a run's output (a diff stands before the line that names its node)."""
    found: dict[str, list[str]] = {}
    part: list[str] = []
    for line in output.splitlines():
        node = re.match(r"changed: \[(\w+)\]", line)
        if line.startswith("TASK"):
            part = []
        elif node:
            found[node[1]] = part
            part = []
        else:
            part.append(line)
    return found


def recap(output: str) -> list[str]:
    return re.findall(r"^spark\d .* changed=(\d+)", output, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def before() -> list[str]:
    """The lab as somebody else left it: NVIDIA's addresses on one cable, from a file of theirs; a stray address by hand."""
    for number, node in enumerate(NODES):
        out, back = 2 * number, 2 * (number - 1) % 6
        text = OLD.format(out=out, out1=out + 1, back=back, back1=back + 1)
        stray = f"ip addr add 10.9.9.{number + 1}/24 dev enp1s0f0np0"
        on(node, f"umask 077; cat >{CX7} <<'X'\n{text}X\nnetplan apply 2>/dev/null; {stray}")
    for node in NODES:
        on(
            node,
            "for i in $(seq 50); do [ $(ip -br addr | grep -c 192.168) = 4 ] && exit 0; sleep 0.1; done; ip -br addr; exit 1",
        )
    return network()


def test_fresh_and_unchanged_nodes_become_what_a_dry_run_says():
    """Before the lab gets its old network: bare nodes, then nodes that are as planned; and the way back to bare ones."""
    code, dry = change({}, "--check", "--diff")
    assert code == 0, dry
    code, wet = change({}, "--diff")
    assert code == 0, wet
    assert diffs(dry) == diffs(wet)
    assert set(diffs(wet)) == set(NODES)
    assert all(any(line.startswith("+") and "198.19." in line for line in lines) for lines in diffs(wet).values())
    code, dry = change({}, "--check", "--diff")
    assert code == 0, dry
    assert diffs(dry) == {}
    assert recap(dry) == recap(change({})[1]) == ["0", "0", "0"]
    code, output = change({}, book="playbooks/uninstall.yml")
    assert code == 0, output
    assert all(on(node, f"ls {OURS} 2>/dev/null | wc -l") == "0" for node in NODES)


def test_an_old_file_is_named_and_nothing_changes(before):
    code, output = change()
    assert code != 0
    for node in NODES:
        assert f"{node}: fabric.foreign" in output
    for part in (
        f"{CX7}: ethernets.enp1s0f0np0",
        "ethernets.rail1",
        "match name enP2p1s0f0*, set-name",
        "vlans.lan7",
        "fabric_foreign: migrate",
    ):
        assert part in output
    assert_as_before(before, time.monotonic(), 5)


def test_a_tab_in_somebody_elses_file_is_named_with_its_line(before):
    on("spark2", "printf 'network:\\n  version: 2\\n\\tethernets: {}\\n' >/etc/netplan/50-factory.yaml")
    try:
        code, output = change({"fabric_foreign": "migrate"})
    finally:
        on("spark2", "rm /etc/netplan/50-factory.yaml")
    assert code != 0
    assert "spark2: fabric.netplan error: found /etc/netplan/50-factory.yaml, line 3:" in output
    assert "fabric_quarantine: true" in output
    assert "spark1: fabric." not in output
    assert_as_before(before, time.monotonic(), 5)


def test_a_serving_engine_is_not_disturbed(before):
    on("spark3", "systemd-run -q --unit gb10-ring-engine sleep infinity")
    try:
        code, output = change({"fabric_foreign": "migrate"})
    finally:
        on("spark3", "systemctl stop gb10-ring-engine")
    assert code != 0
    assert "spark3: fabric.serving error: found gb10-ring-engine.service is active" in output
    assert "fabric_apply_while_serving: true" in output
    assert_as_before(before, time.monotonic(), 5)


def test_a_neighbour_that_never_answers_puts_every_node_back(before):
    on("spark3", "sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
    started = time.monotonic()
    try:
        code, output = change({"fabric_foreign": "migrate"})
    finally:
        on("spark3", "sysctl -qw net.ipv4.icmp_echo_ignore_all=0")
    assert code != 0
    assert "spark1: fabric.ping" in output
    assert "spark2: fabric.ping" in output
    for node in NODES:  # at once, not by the timers
        assert f"changed: [{node}]" in output.split("Bring the earlier network back")[1]
    assert_as_before(before, started)


def test_a_cable_cut_during_apply_puts_every_node_back(before):
    with running({**QUICK, "fabric_foreign": "migrate"}) as process:
        ctl("cable", "cut", "cable2")
        cut = time.monotonic()
        output = process.communicate(timeout=90)[0]
    ctl("cable", "heal", "cable2")
    assert process.returncode != 0
    assert "spark2: fabric.carrier" in output or "spark2: fabric.ping" in output, output
    assert_as_before(before, cut)


def test_a_wrong_management_address_puts_every_node_back(before):
    """Somebody's edit that was never applied: netplan apply makes it real, together with ours."""
    file = "/etc/netplan/01-management.yaml"
    on("spark2", f"cp -p {file} /root/kept; sed -i s,198.18.0.2/24,198.18.7.2/24, {file}")
    with running({**QUICK, "fabric_foreign": "migrate", "fabric_confirm_timeout": 20}) as process:
        fault = time.monotonic()
        output = process.communicate(timeout=120)[0]
    on("spark2", f"cp -p /root/kept {file}")
    assert process.returncode != 0
    assert "spark2 does not answer after the change of its network" in output, output
    assert_as_before(before, fault)


def test_a_killed_controller_puts_every_node_back(before):
    """With the timeout that users get."""
    with running({"fabric_foreign": "migrate"}) as process:
        os.killpg(process.pid, signal.SIGKILL)
        killed = time.monotonic()
    assert_as_before(before, killed)


def test_a_power_cut_between_apply_and_confirm_boots_into_the_old_network(before):
    with running({"fabric_foreign": "migrate"}) as process:
        time.sleep(3)
        os.killpg(process.pid, signal.SIGKILL)
    ctl("node", "kill", "spark3")
    ctl("node", "start", "spark3")
    started = time.monotonic()
    code, output = change()  # a second run is not blocked by the first
    assert "an earlier run left a change unconfirmed" in output
    assert "fabric.foreign" in output
    assert code != 0
    assert_as_before(before, started)


def test_a_dry_run_says_what_migrating_does_and_the_run_does_it(before):
    on("spark2", "printf 'network:\\n  version: 2\\n\\tethernets: {}\\n' >/etc/netplan/50-factory.yaml")
    wanted = {"fabric_foreign": "migrate", "fabric_quarantine": True}
    code, dry = change(wanted, "--check", "--diff")
    assert code == 0, dry
    code, wet = change(wanted, "--diff")
    assert code == 0, wet
    assert diffs(dry) == diffs(wet)
    assert set(diffs(wet)) == set(NODES)
    for node in NODES:
        found = on(
            node, "ip -br -4 addr | grep -c ' 198.19.'; ip -br addr | grep -c '192.168\\|10.9.9\\|en.*fe80' || true"
        )
        assert found.split() == ["4", "0"], on(node, "ip -br addr")
        assert on(node, ARMED) == ""
        assert on(node, f"stat -c %a {OURS}; ls {CX7} /sys/class/net/lan7 2>/dev/null | wc -l").split() == ["600", "0"]
        # the name that went with the old file is given by ours
        assert on(node, f"grep -c set-name: {OURS}; cat {LINK_FILE}").split("\n", 1) == ["1", NAMED]
    assert (
        on("spark2", "ls /etc/netplan/")
        == "01-management.yaml\n50-factory.yaml.disabled-by-gb10-ring\n60-gb10-ring.yaml"
    )
    code, again = change(wanted)
    assert code == 0
    assert recap(again) == ["0", "0", "0"]


def test_drift_is_shown_and_repaired():
    on("spark1", "ip addr add 10.9.9.1/24 dev enP2p1s0f0np0")
    ctl("mtu", "spark2", "enp1s0f1np1", "1500")
    on("spark3", f"sed -i s/9000/8000/ {OURS}")
    code, dry = change({}, "--check", "--diff")
    assert code == 0, dry
    code, wet = change({}, "--diff")
    assert code == 0, wet
    assert diffs(dry) == diffs(wet)
    assert set(diffs(wet)) == set(NODES)
    assert any("10.9.9.1/24" in line for line in diffs(wet)["spark1"])
    assert any(line.startswith("-") and "mtu 1500" in line for line in diffs(wet)["spark2"])
    assert recap(change()[1]) == ["0", "0", "0"]


def test_uninstall_brings_files_and_addresses_back(before):
    book = "playbooks/uninstall.yml"
    code, dry = change({}, "--check", "--diff", book=book)
    assert code == 0, dry
    code, wet = change({}, "--diff", book=book)
    assert code == 0, wet
    assert diffs(dry) == diffs(wet)
    on("spark2", "rm /etc/netplan/50-factory.yaml.disabled-by-gb10-ring")
    assert_as_before(before, time.monotonic(), 15)
    assert on("spark1", f"ls {LINK_FILE} /run/systemd/network/10-netplan-rail1.link 2>/dev/null; true").endswith(
        "rail1.link"
    )
    assert recap(change({}, book=book)[1]) == ["0", "0", "0"]
    assert (
        on("spark1", "ls -A /var/lib/gb10-ring/network-before /var/lib/gb10-ring/network-rollback 2>/dev/null | wc -l")
        == "0"
    )


def test_ports_of_network_manager_stay_with_it(before):
    """As on DGX OS: NetworkManager has the ports, one by a profile that somebody made, one by a netplan file that also names it,
    the others by those that it makes up."""
    profile = "/etc/NetworkManager/system-connections/cx7.nmconnection"
    text = "[connection]\nid=cx7\ntype=ethernet\ninterface-name=enp1s0f0np0\n\n[ipv4]\nmethod=manual\naddress1=192.168.0.1/24\n"
    on(
        "spark1",
        f"rm {CX7}; netplan apply 2>/dev/null; DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install network-manager 2>&1",
    )
    on("spark1", f"umask 077; printf '{text}' >{profile}; nmcli connection reload; nmcli -w 10 connection up cx7")
    names = "{match: {name: enP2p1s0f0*}, set-name: enP2p1s0f0np0, renderer: NetworkManager}"
    on("spark1", f"umask 077; echo 'network: {{ethernets: {{rail1: {names}}}}}' >{CX7}; netplan apply 2>/dev/null")
    digest = on("spark1", f"md5sum {profile} {CX7}")
    code, output = change({})
    assert code != 0
    assert f"{profile}: connection defines enp1s0f0np0 (NetworkManager profile, by name)" in output
    code, output = change({"fabric_foreign": "migrate"})
    assert code == 0, output
    rows = on("spark1", "nmcli -t -f DEVICE,STATE,CONNECTION device").splitlines()
    assert {f"{port}:connected:netplan-{port}" for port in PORTS} <= set(rows)
    assert on("spark1", f"cat {LINK_FILE}") == NAMED
    assert on(
        "spark1", "ip -br -4 addr | grep -c ' 198.19.'; ip -br addr | grep -c '192.168\\|en.*fe80' || true"
    ).split() == ["4", "0"]
    assert recap(change({"fabric_foreign": "migrate"})[1]) == ["0", "0", "0"]
    code, output = change({}, book="playbooks/uninstall.yml")
    assert code == 0, output
    assert on("spark1", f"md5sum {profile} {CX7}") == digest
    assert "enp1s0f0np0:connected:cx7" in on("spark1", "nmcli -t -f DEVICE,STATE,CONNECTION device")
    assert "192.168.0.1/24" in on("spark1", "ip -br addr show enp1s0f0np0")
