# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab itself: its nodes, its faults, its stand-ins, and that it touches nothing of the machine."""

from __future__ import annotations

import errno
import socket
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Lab, host_links

JUMBO = "ping -q -c 1 -W 1 -M do -s 8972"
SMALL = "ping -q -c 1 -W 1"


def test_three_nodes_run_without_a_failed_unit(lab: Lab) -> None:
    for name in ("spark1", "spark2", "spark3"):
        assert lab.ctl("ssh", name, "hostname; systemctl is-system-running").split() == [name, "running"]


def test_up_leaves_a_running_lab_as_it_is(lab: Lab) -> None:
    before = lab.pids()
    began = time.monotonic()
    assert "0 uploaded" in lab.ctl("up", "--data-mib", "64")
    assert lab.pids() == before
    assert time.monotonic() - began < 8


def test_up_refuses_to_replace_a_running_lab_by_another(lab: Lab) -> None:
    said = lab.ctl("up", "--data-mib", "64", "--nodes", "4", rc=1)
    assert (
        said
        == "lab: instance 't-lab' runs a ring of 3 nodes with 64 MiB each: `lab/ctl --instance t-lab down --nodes-only` first\n"
    )


def test_nothing_appears_in_the_machines_own_namespace(lab: Lab, links_before: str) -> None:
    assert host_links() == links_before
    assert "198.1" not in links_before


def test_a_lab_address_fails_at_once_outside_the_lab(lab: Lab) -> None:
    for address in ("198.18.0.1", "198.18.0.254", "198.19.0.1"):
        with socket.socket() as client, pytest.raises(OSError) as raised:
            client.settimeout(2)
            client.connect((address, 22))
        assert raised.value.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH}


def test_the_controller_namespace_has_no_way_out(lab: Lab) -> None:
    assert lab.controller("ip route") == "198.18.0.0/24 dev br-mgmt proto kernel scope link src 198.18.0.254"


def test_commands_in_the_controller_namespace_know_the_lab(lab: Lab) -> None:
    said = lab.controller('echo "$GB10_LAB $AWS_SHARED_CREDENTIALS_FILE $LAB_INSTANCE"; command -v ansible-playbook')
    assert said.splitlines() == [
        f"{lab.directory} {lab.directory}/aws-credentials t-lab",
        str(lab.directory.parents[1] / ".venv/bin/ansible-playbook"),
    ]


def test_exit_status_is_the_commands(lab: Lab) -> None:
    lab.controller("exit 7", rc=7)
    lab.node("spark1", "exit 8", rc=8)
    lab.ctl("ssh", "spark1", "exit 9", rc=9)
    assert "spark1, spark2, spark3" in lab.ctl("exec", "spark9", "--", "true", rc=1)


def test_private_files_are_private(lab: Lab) -> None:
    private = [
        lab.directory / "aws-credentials",
        lab.directory / "s3-identities.json",
        lab.directory.parent / "keys/id_ed25519",
    ]
    assert [oct(path.stat().st_mode & 0o777) for path in private] == ["0o600"] * 3


def test_packages_install_from_the_local_repository(lab: Lab) -> None:
    assert lab.node("spark3", "apt-cache policy perftest | grep -c gb10-lab-repo") == "1"
    lab.node("spark3", "apt-get install -q -y --no-install-recommends ibverbs-utils infiniband-diags >/dev/null 2>&1")
    said = lab.node("spark3", "ibstat rocep1s0f0")
    assert "CA type: MT4129" in said
    assert "Link layer: Ethernet" in said


def test_both_rails_carry_full_frames_and_no_more(lab: Lab, legs: dict[str, str]) -> None:
    for address in legs.values():
        lab.node("spark1", f"{JUMBO} {address}")
        assert "+1 errors" in lab.node("spark1", f"{JUMBO.replace('8972', '8973')} {address}", rc=1)


def test_rdma_files_follow_addresses_and_carrier(lab: Lab, legs: dict[str, str]) -> None:
    port = "/sys/class/infiniband/rocep1s0f0/ports/1"
    lab.until("spark1", f"grep -q c613:0001 {port}/gids/3")
    assert lab.node("spark1", f"cat {port}/gid_attrs/types/3 {port}/gid_attrs/ndevs/3").splitlines() == [
        "RoCE v2",
        "enp1s0f0np0",
    ]
    assert lab.node("spark1", f"cat {port}/state {port}/rate").splitlines() == ["4: ACTIVE", "200 Gb/sec (4X HDR)"]
    netdev = "/sys/class/net/enp1s0f0np0"
    assert lab.node("spark1", f"cat {netdev}/speed {netdev}/phys_port_name").split() == ["200000", "p0"]
    assert lab.node("spark1", f"ls {netdev}/device/infiniband") == "rocep1s0f0"
    assert lab.node("spark1", "ls /sys/class/infiniband/rocep1s0f0/device/net") == "enp1s0f0np0"
    assert lab.node("spark1", "cat /sys/class/infiniband/*/sys_image_guid | sort -u | wc -l") == "1"
    assert "enP7s7" in lab.node("spark1", "ls /sys/class/net")


def test_a_cut_cable_takes_the_carrier_at_both_ends(lab: Lab, legs: dict[str, str]) -> None:
    lab.ctl("cable", "cut", "spark2:1")
    for name, netdev, rdma in (("spark1", "enP2p1s0f0np0", "roceP2p1s0f0"), ("spark2", "enp1s0f1np1", "rocep1s0f1")):
        lab.until(
            name,
            f"grep -q 0 /sys/class/net/{netdev}/carrier && grep -q DOWN /sys/class/infiniband/{rdma}/ports/1/state",
        )
        assert "UP" in lab.node(name, f"ip -o link show {netdev} | grep -o '<[^>]*>'").strip("<>").split(",")
    assert "cut" in lab.ctl("cable", "list").splitlines()[0]
    lab.ctl("cable", "heal", "cable1")
    lab.until("spark1", f"{JUMBO} {legs['rail0']} >/dev/null")


def test_swapped_cables_lead_elsewhere(lab: Lab, legs: dict[str, str]) -> None:
    lab.ctl("cable", "swap", "spark1:0", "spark1:1")
    lab.node("spark1", f"ip neigh flush dev enp1s0f0np0; {SMALL} {legs['rail0']}", rc=1)
    lab.ctl("cable", "swap", "spark1:1", "spark1:0")
    lab.until("spark1", f"{SMALL} {legs['rail0']} >/dev/null")


def test_one_end_with_a_small_mtu_loses_full_frames_silently(lab: Lab, legs: dict[str, str]) -> None:
    lab.ctl("mtu", "spark2", "enp1s0f1np1", "1500")
    lab.node("spark1", f"{JUMBO} {legs['rail0']}", rc=1)
    lab.node("spark1", f"{SMALL} {legs['rail0']}")
    lab.node("spark1", f"{JUMBO} {legs['rail1']}")
    lab.ctl("mtu", "spark2", "enp1s0f1np1", "9000")
    lab.node("spark1", f"{JUMBO} {legs['rail0']}")
    assert "one of enp1s0f0np0" in lab.ctl("mtu", "spark2", "eth0", "1500", rc=1)


def test_kernel_settings_of_a_node_are_its_own(lab: Lab) -> None:
    knob = Path("/proc/sys/vm/swappiness")
    before = knob.read_text()
    lab.node("spark1", "sysctl -q -w vm.swappiness=7 vm.min_free_kbytes=1048576 net.core.rmem_max=268435456")
    assert lab.node("spark1", "cat /proc/sys/vm/swappiness /proc/sys/net/core/rmem_max").split() == ["7", "268435456"]
    assert knob.read_text() == before
    assert lab.node("spark2", "cat /proc/sys/vm/swappiness") == "60"
    assert lab.node("spark1", "cat /proc/swaps | wc -l") == "1"


def test_a_reboot_keeps_what_is_in_files_and_nothing_else(lab: Lab) -> None:
    settings = "vm.watermark_boost_factor=0\\nvm.min_free_kbytes=262144\\nnet.ipv4.tcp_mtu_probing=1\\n"
    lab.node("spark3", f"printf '{settings}' >/etc/sysctl.d/90-test.conf")
    lab.node(
        "spark3",
        "sysctl -q -w vm.swappiness=7 net.ipv4.tcp_rmem='4096 87380 1000000'; ip link set enp1s0f0np0 up mtu 9000",
    )
    before = lab.node("spark3", "cat /proc/sys/kernel/random/boot_id")
    lab.ctl("node", "reboot", "spark3")
    values = "/proc/sys/vm/watermark_boost_factor /proc/sys/vm/min_free_kbytes /proc/sys/net/ipv4/tcp_mtu_probing"
    assert lab.node("spark3", f"cat {values}").split() == ["0", "262144", "1"]
    assert lab.node("spark3", "cat /proc/sys/vm/swappiness") == "60"
    assert "1000000" not in lab.node("spark3", "cat /proc/sys/net/ipv4/tcp_rmem")
    assert lab.node("spark3", "cat /sys/class/net/enp1s0f0np0/mtu") == "1500"
    assert lab.node("spark3", "cat /proc/sys/kernel/random/boot_id") != before


def test_a_power_cut_keeps_the_disk_and_is_seen_by_the_neighbours(lab: Lab, legs: dict[str, str]) -> None:
    lab.node("spark2", "echo kept >/root/kept; echo kept >/var/lib/gb10-ring/kept; sync")
    before = lab.pids()
    lab.ctl("node", "kill", "spark2")
    assert [node["running"] for node in lab.status()["nodes"]] == [True, False, True]
    lab.until("spark1", "grep -q 0 /sys/class/net/enp1s0f0np0/carrier")
    assert "spark2 is off" in lab.ctl("exec", "spark2", "--", "true", rc=1)
    lab.ctl("ssh", "spark2", "true", rc=255)
    lab.ctl("node", "start", "spark2")
    assert lab.node("spark2", "cat /root/kept /var/lib/gb10-ring/kept").split() == ["kept", "kept"]
    lab.until("spark1", f"{JUMBO} {legs['rail1']} >/dev/null")
    assert [pid for pid in lab.pids() if pid in before] == [before[0], before[2]]
    assert "already on" in lab.ctl("node", "start", "spark2", rc=1)


def test_a_node_that_powers_off_is_off_until_up(lab: Lab) -> None:
    lab.node("spark3", "systemctl poweroff")
    end = time.monotonic() + 15
    while lab.status()["nodes"][2]["running"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    lab.ctl("up", "--data-mib", "64", "--no-checkpoint")
    assert all(lab.pids())


def test_the_data_file_system_fills_up(lab: Lab) -> None:
    fill = "dd if=/dev/zero of=/var/lib/gb10-ring/fill bs=1M count=100 2>&1"
    assert "No space left on device" in lab.node("spark1", fill, rc=1)
    lab.node("spark1", "rm /var/lib/gb10-ring/fill")
    lab.node("spark1", "echo x >/root/x")


S3 = """
import boto3, botocore.exceptions, json, sys
def client(profile):
    return boto3.Session(profile_name=profile).client("s3", endpoint_url="http://198.18.0.254:8333")
bucket, prefix = "models", "bot-lab-21/DeepSeek-V4.1-Flash-EXL3-lab/"
reader = client("reader")
keys = [entry["Key"] for entry in reader.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
sums = [reader.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED") for key in keys]
try:
    reader.put_object(Bucket=bucket, Key="x", Body=b"x")
    refused = None
except botocore.exceptions.ClientError as error:
    refused = error.response["ResponseMetadata"]["HTTPStatusCode"]
whole = [bool(answer.get("ChecksumCRC64NVME")) and answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT" for answer in sums]
print(len(keys), all(whole), refused)
"""


def test_the_s3_server_holds_the_checkpoint_with_checksums(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "s3.py"
    script.write_text(S3)
    assert lab.controller(f"python {script}") == "54 True 403"
    anonymous = "import urllib.request as r; r.urlopen('http://198.18.0.254:8333/models/x', timeout=5)"
    assert "403" in lab.node("spark1", f'python3 -c "{anonymous}" 2>&1', rc=1)


def test_a_prefix_becomes_equal_to_a_folder(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2" * (17 << 20))
    assert "2 files, 2 uploaded, 0 removed" in lab.ctl("s3", "upload", str(tmp_path), "t/p")
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_bytes(b"3")
    assert "1 files, 1 uploaded, 1 removed" in lab.ctl("s3", "upload", str(tmp_path), "t/p")
    assert lab.ctl("s3", "ls", "t/").split() == ["1", "t/p/a"]


def test_two_labs_run_side_by_side_with_the_same_addresses(lab: Lab) -> None:
    other = Lab("t-lab2")
    other.ctl("down")
    try:
        other.ctl("up", "--shape", "pair", "--data-mib", "32", "--no-checkpoint")
        other.node("spark1", "echo other >/root/whose")
        lab.node("spark1", "echo first >/root/whose")
        assert other.ctl("ssh", "spark1", "cat /root/whose").strip() == "other"
        assert lab.ctl("ssh", "spark1", "cat /root/whose").strip() == "first"
        assert other.ctl("ssh", "spark1", "ls /sys/class/net | grep -c np").strip() == "4"
    finally:
        other.ctl("down")
    assert not other.directory.exists()
    assert lab.ctl("ssh", "spark1", "cat /root/whose").strip() == "first"
    assert (
        "unreachable 198.18.0.0/15"
        in subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    )
