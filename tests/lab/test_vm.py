# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two virtual machines with a kernel of their own: what the namespaces of the lab cannot show (`make test-vm`).

The tests tell one story, in order: the machines as they come, the fabric, RDMA, memory, a restart. Every task is slow on an
emulated processor, so each test asks once what it wants to know.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from site_run import CHECKOUT, INVENTORY

MACHINES = ("spark1", "spark2")
RAILS = {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0"}
MAC = "4c:bb:47:{number:02x}:{rail:02x}:00"
FACTORY = "/etc/netplan/40-cx7.yaml"  # the file of NVIDIA connect-two-sparks
FACTORY_ENTRY = """\
    cx7-rail{rail}:
      match: {{macaddress: "{mac}"}}
      set-name: {netdev}
      mtu: 9000
      dhcp4: false
      link-local: []
      addresses: [192.168.10{rail}.1{number}/24]
"""
SWAP_AND_SWAPPINESS = "awk 'NR > 1 {print $1}' /proc/swaps; cat /proc/sys/vm/swappiness"
REBOOT_SECONDS = 420.0

Ends = dict[str, list[Any]]


def on(machine: str, script: str) -> str:
    """What a shell script prints on a machine; it must succeed."""
    argv = ["lab/ctl", "vm", "exec", machine, "--", "sh", "-euc", script]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{machine}: {shlex.quote(script)}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def on_all(*scripts: str) -> list[str]:
    """The same on all machines at once: one script for all of them, or one for each."""
    with ThreadPoolExecutor(len(MACHINES)) as pool:
        return list(pool.map(on, MACHINES, scripts if len(scripts) > 1 else scripts * len(MACHINES)))


def ansible(*argv: str) -> tuple[int, str]:
    """Exit status and output of a command of Ansible on the pair."""
    done = subprocess.run(
        [*argv, "-i", str(INVENTORY / "vm-pair.yml")],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def play(name: str, *extra: str) -> str:
    """What a playbook prints; it must succeed."""
    status, said = ansible("ansible-playbook", f"playbooks/{name}.yml", *extra)
    assert status == 0, said
    return said


def changed(said: str) -> list[int]:
    """`changed` of each machine in the recap."""
    return [int(count) for count in re.findall(r"^spark\d+ .*changed=(\d+)", said, re.MULTILINE)]


def module(name: str, **options: Any) -> dict[str, Any]:
    """Results of one of our modules, by machine."""
    status, said = ansible("ansible", "ring", "--one-line", "-m", f"gb10.ring.{name}", "-a", json.dumps(options))
    assert status == 0, said
    found = re.findall(r"^(spark\d) \| (?:SUCCESS|CHANGED) => (\{.*\})$", said, re.MULTILINE)
    return {machine: json.loads(result) for machine, result in found}


def planned_change() -> dict[str, Any]:
    """What the role would change now and what speaks against it, by machine."""
    return module("fabric_netplan", phase="plan", node="{{ inventory_hostname }}", ports="{{ fabric_ports }}")


def fabric_now() -> list[Ends]:
    """Of each machine: netdev -> its MTU and its IPv4 addresses."""
    return [
        {
            link["ifname"]: [link["mtu"], *(f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"])]
            for link in json.loads(found)
            if link["ifname"] in RAILS
        }
        for found in on_all("ip -j -4 address")
    ]


def fabric_with(address: str) -> list[Ends]:
    """The same as it should be: on each port one address, by the numbers of its rail and its machine."""
    return [
        {netdev: [9000, address.format(rail=rail, number=number)] for rail, netdev in enumerate(RAILS)}
        for number in (1, 2)
    ]


PLANNED = fabric_with("198.19.{rail}.{number}/24")
FACTORY_MADE = fabric_with("192.168.10{rail}.1{number}/24")


def full_pings(*others: str) -> None:
    """Unfragmented pings of the full MTU from the first machine; carrier and addresses may need a moment."""
    ping = (
        "for i in 1 2 3 4 5 6; do [ $i -lt 6 ]; ping -q -c 1 -W 2 -M do -s 8972 {} >/dev/null && break; sleep 1; done"
    )
    on("spark1", "\n".join(ping.format(other) for other in others))


@pytest.fixture(scope="module")
def factory() -> None:
    """An old netplan file that finds the fabric's ports by their MAC addresses, active on both machines.

    Nothing else names them: the lab's own .link files go, without which udev would call them after their PCI slots.
    """
    scripts = []
    for number in (1, 2):
        ports = "".join(
            FACTORY_ENTRY.format(rail=rail, number=number, netdev=netdev, mac=MAC.format(number=number, rail=rail))
            for rail, netdev in enumerate(RAILS)
        )
        scripts.append(
            f"rm /etc/systemd/network/70-gb10-lab-*.link; umask 077; cat >{FACTORY} <<'X'\nnetwork:\n  version: 2\n  ethernets:\n{ports}X\nnetplan apply"
        )
    on_all(*scripts)


@pytest.fixture(scope="module")
def fabric(factory: None) -> str:
    """The fabric in place of the old file; returns what the first run said."""
    return play("fabric", "-e", "fabric_foreign=migrate")


def test_set_name_by_mac_at_boot(factory: None) -> None:
    for said in on_all("udevadm info /sys/class/net/enP7s7"):
        assert "ID_NET_LINK_FILE=/run/systemd/network/10-netplan-management.link" in said
        assert re.search(r"ID_NET_NAME_PATH=enp0s\d+$", said, re.MULTILINE)  # what it would be called without


def test_a_file_that_matches_by_mac_is_obeyed(factory: None) -> None:
    full_pings("192.168.100.12", "192.168.101.12")
    assert fabric_now() == FACTORY_MADE


def test_it_speaks_against_the_change_by_name(factory: None) -> None:
    for result in planned_change().values():
        check = next(check for check in result["checks"] if check["id"] == "fabric.foreign")
        assert not check["ok"]
        assert check["found"].count(f"{FACTORY}: ethernets.cx7-rail") == len(RAILS)
        assert "match macaddress" in check["found"]
        assert "fabric_foreign: migrate" in check["cure"]


def test_migration_leaves_exactly_the_planned_addresses(fabric: str) -> None:
    assert all(count > 0 for count in changed(fabric)), fabric
    assert fabric_now() == PLANNED
    full_pings("198.19.0.2", "198.19.1.2")


def test_fabric_info_sees_the_kernels_devices(fabric: str) -> None:
    results = module("fabric_info", ports="{{ fabric_ports }}")
    for machine, ends in zip(MACHINES, PLANNED, strict=True):
        ports = {port["netdev"]: port for port in results[machine]["ports"] if port["present"]}
        assert ports.keys() == RAILS.keys()
        for netdev, device in RAILS.items():
            port = ports[netdev]
            assert (port["rdma_device"], port["rdma_state"]) == (device, "4: ACTIVE")
            assert [port["mtu"], *port["ipv4"]] == ends[netdev]
            folder = f"/sys/class/infiniband/{device}/ports/1"
            index = port["gid_index"]
            gid, kind = on(machine, f"cat {folder}/gids/{index} {folder}/gid_attrs/types/{index}").splitlines()
            assert str(ip_address(gid).ipv4_mapped) == ends[netdev][1].split("/")[0]
            assert kind == "RoCE v2"


def test_queue_pairs_of_a_process_stop_a_change(fabric: str) -> None:
    """By `rdma -j` on a machine with devices: the kernel has queue pairs of its own there, which do not count."""
    stray = "198.19.77.1/24"  # something to change
    holder = "systemd-run --quiet --collect --unit=holder ibv_rc_pingpong -d rocep1s0f0 -g 1"
    on("spark1", f"{holder}; ip address add {stray} dev enp1s0f0np0")
    try:
        results = planned_change()
        checks = {
            machine: next(check for check in result["checks"] if check["id"] == "fabric.serving")
            for machine, result in results.items()
        }
    finally:
        on("spark1", f"systemctl stop holder; ip address delete {stray} dev enp1s0f0np0")
    assert results["spark1"]["pending"]
    assert not checks["spark1"]["ok"]
    assert "(ibv_rc_pingpong) holds RDMA queue pairs" in checks["spark1"]["found"]
    assert "fabric_apply_while_serving: true" in checks["spark1"]["cure"]
    assert not results["spark2"]["pending"]
    assert checks["spark2"]["ok"]


def test_the_ladder_and_ib_write_bw(fabric: str, tmp_path: Path) -> None:
    report = tmp_path / "verify.json"
    wanted = {"verify_roles": ["fabric"], "verify_report_path": str(report), "fabric_bandwidth": True}
    said = play("verify", "-e", json.dumps(wanted))
    checks = json.loads(report.read_text(encoding="utf-8"))["checks"]
    for machine in MACHINES:
        own = [check for check in checks if check["node"] == machine]
        assert all(check["ok"] for check in own if check["severity"] == "error"), said
        ids = [check["id"] for check in own]
        for rung in ("fabric.ping", "fabric.gid", "fabric.active_mtu", "fabric.bandwidth"):
            assert ids.count(rung) == len(RAILS), f"{rung} of {machine}: {ids}"
        assert ids.count("fabric.bandwidth_sum") == 1
        for check in own:
            if check["id"] == "fabric.bandwidth":
                assert re.search(r"\d\.\d+ Gb/s", check["found"]), check


def test_swap_and_settings_are_real() -> None:
    assert on_all(SWAP_AND_SWAPPINESS) == ["/swap.img\n60"] * 2
    assert all(count > 0 for count in changed(play("site", "--tags", "memory")))
    assert on_all(SWAP_AND_SWAPPINESS) == ["10"] * 2


def test_all_of_it_survives_a_restart_and_a_second_run_changes_nothing(fabric: str) -> None:
    """The ports' names as well, which only the migrated file gave."""
    before = on_all("cat /proc/sys/kernel/random/boot_id; systemctl reboot")
    limit = time.monotonic() + REBOOT_SECONDS
    for machine, old in zip(MACHINES, before, strict=True):
        await_boot(machine, old, limit)
    assert on_all(SWAP_AND_SWAPPINESS) == ["10"] * 2
    for netdev in RAILS:
        for said in on_all(f"udevadm info /sys/class/net/{netdev}"):
            assert f"ID_NET_LINK_FILE=/run/systemd/network/10-netplan-{netdev}.link" in said
            assert re.search(r"ID_NET_NAME_PATH=enp0s\d+$", said, re.MULTILINE)  # what it would be called without
    for said in on_all("rdma -j link show"):
        links = {link["netdev"]: (link["ifname"], link["state"]) for link in json.loads(said)}
        assert links == {netdev: (device, "ACTIVE") for netdev, device in RAILS.items()}
    said = play("site", "--tags", "fabric,memory")
    assert changed(said) == [0, 0], said
    assert fabric_now() == PLANNED


def await_boot(machine: str, old: str, limit: float) -> None:
    """Wait until the machine has started anew and finished its start."""
    script = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running"
    argv = ["lab/ctl", "vm", "exec", machine, "--", "sh", "-c", script]
    while True:
        done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False)
        words = done.stdout.split()
        if len(words) == 2 and words[0] != old and words[1] in {"running", "degraded"}:
            return
        assert time.monotonic() < limit, f"{machine} not back within {REBOOT_SECONDS:g} s: {done.stdout}{done.stderr}"
        time.sleep(2)
