# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host readiness on a freshly booted lab of three (`make host-test`): faults before anything changes, settings, drift, a reboot, the way back.

One story, in order. The nodes get a life of their own first: swap in fstab and in a unit, files of a person under our names, an OOM
daemon on one. Kernel settings are stand-in files here; files, units, logind, journald, PAM and nftables are real.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from site_run import NODES, TREE, ctl, on, on_all, play, same

LIFE = """
set -eu
printf '/swap.img\\tnone swap sw 0 0\\n# gb10.ring: a remark of a person\\nLABEL=swap2 none swap defaults,pri=5\\n' >>/etc/fstab
printf '[Unit]\\nDescription=by hand\\n[Swap]\\nWhat=/data/swap\\n[Install]\\nWantedBy=swap.target\\n' >/etc/systemd/system/data-swap.swap
mkdir -p /etc/security/limits.d /etc/tmpfiles.d
printf '* hard core 0\\n' >/etc/security/limits.d/90-gb10-ring.conf
printf '# of a person\\n' >/etc/tmpfiles.d/90-gb10-ring.conf
systemctl -q enable data-swap.swap; systemctl daemon-reload
"""
# A package of the role's that was there before, with those that it needs.
OOM = (
    "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends earlyoom ibverbs-utils >/dev/null; "
    "systemctl is-active earlyoom"
)
SETTINGS = "swappiness overcommit_memory watermark_boost_factor compaction_proactiveness min_free_kbytes watermark_scale_factor"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
STATE = (
    f"cd /proc/sys/vm; head -qn 1 {SETTINGS}; echo $(head -n 1 {THP}); cat /proc/swaps; systemctl get-default; "
    "systemctl list-unit-files --no-legend --no-pager 'data-swap.swap' 'earlyoom.service' 'gb10*'; "
    "systemctl is-active earlyoom gb10-ring-engine gb10-ring-memory-serving; "
    "grep -v '^rdma:' /etc/group; grep -v '^rdma:' /etc/gshadow; dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' | sort; "
    "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC; true"
)
WANTED = {
    "memory_profile": "tuned",
    "memory_oom_daemon": "none",
    "memory_headless": True,
    "memory_clock_lock": "300,2200",
    "memory_nvidia_smi": "/opt/nvidia-smi",
    "rdma_memlock": "4096",  # below the 8192 that a login has without it
}
# Of the machine that runs the lab: every setting of these that can be read and does not count something.
HOST = (
    *(
        str(path)
        for folder in ("vm", "fs/inotify", "net/core")
        for path in sorted(Path("/proc/sys", folder).glob("*"))
        if os.access(path, os.R_OK)
    ),
    *("/proc/swaps", THP),
)

FAULTS = {
    "spark1": """
sed 's/^CmaTotal.*/CmaTotal: 0 kB/; s/^CmaFree.*/CmaFree: 9765000 kB/' /proc/meminfo >/run/meminfo
grep -q '^CmaFree: 9765000' /run/meminfo || printf 'CmaTotal: 0 kB\\nCmaFree: 9765000 kB\\n' >>/run/meminfo
mount --bind /run/meminfo /proc/meminfo
printf 'NCCL_IB_GID_INDEX=3\\n' >/etc/nccl.conf
""",
    "spark2": """
echo 6.17.0-1021-nvidia >/run/osrelease; mount --bind /run/osrelease /proc/sys/kernel/osrelease
nft 'table inet f { chain in { type filter hook input priority 0; policy drop; iifname { lo, enP7s7 } accept; ct state established accept; }; }'
""",
    "spark3": """
systemd-run -q --unit=old-engine sh -c 'exec python3 -c "import ctypes, time; ctypes.CDLL(None).prctl(15, b\\"VLLM::EngineCor\\"); time.sleep(600)"'
cp /proc/swaps /run/swaps; printf '/swap.img file 262144000 209715200 -2\\n' >>/proc/swaps
""",
}
HEALED = {
    "spark1": "umount /proc/meminfo; rm /etc/nccl.conf",
    "spark2": "umount /proc/sys/kernel/osrelease; nft flush ruleset",
    "spark3": "systemctl stop old-engine; cat /run/swaps >/proc/swaps",
}
FOUND = {
    ("spark1", "platform.kho"): ("CmaTotal 0 KiB, CmaFree 9765000 KiB: 9.3 GiB set aside", "kho=off"),
    ("spark1", "rdma.nccl_conf"): ("/etc/nccl.conf:1: NCCL_IB_GID_INDEX=3", "must stay unset"),
    ("spark2", "parity.kernel"): ("6.17.0-1021-nvidia", "Boot the same kernel on every node"),
    ("spark2", "rdma.firewall"): ("chain inet f in lets nothing new in on enp1s0f", "sudo ufw allow in on enp1s0f0np0"),
    ("spark3", "platform.stale_engine"): ("VLLM::EngineCor", "Stop it where it was started"),
    ("spark3", "platform.swap"): ("/swap.img (file, 262144000 KiB, 209715200 KiB used)", "KiB too few"),
}


VENV = "/opt/host-test-venv"


def nccl(banner: str) -> str:
    """Puts a library into the virtual environment of the profile's program, as a NCCL says which it is."""
    return f"mkdir -p {VENV}/lib; printf 'NCCL version {banner}\\n' >{VENV}/lib/libnccl.so.2"


def looked() -> dict[str, str]:
    """Files and states of every node. Groups are compared by what they hold, without the one that rdma-core makes (STATE)."""
    held = re.compile(r"^\w{32}  /etc/g(roup|shadow)-?\n", re.MULTILINE)
    return {node: held.sub("", said) for node, said in on_all(f"{TREE}; {STATE}").items()}


def site(**extra: object) -> dict[str, int]:
    """A run of the two roles: how much changed on each node."""
    code, said = play("--tags", "rdma,memory", "-e", json.dumps({**WANTED, **extra}))
    assert code == 0, said
    return changed(said)


def changed(said: str) -> dict[str, int]:
    return {node: int(count) for node, count in re.findall(r"^(spark\d) .*changed=(\d+)", said, flags=re.MULTILINE)}


def values(node: str) -> list[str]:
    return on(node, f"cd /proc/sys/vm; head -qn 1 {SETTINGS}").split()


def until(node: str, condition: str) -> None:
    on(node, f"for i in $(seq 150); do if {condition}; then exit 0; fi; sleep 0.1; done; exit 1")


def of_the_machine() -> dict[str, str]:
    """Its settings and swap, and how often its page cache was dropped."""
    counts = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    drops = "".join(line for line in counts if line.startswith("drop_"))
    return {"drops": drops, **{path: _read(path) for path in HOST}}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:  # a setting that can only be written
        return str(error.strerror)


@pytest.fixture(scope="module")
def machine() -> dict[str, str]:
    """Settings and swap of the machine that runs the lab, before any node was touched."""
    return of_the_machine()


@pytest.fixture(scope="module")
def before(machine: dict[str, str]) -> dict[str, str]:
    """Nodes with a life of their own."""
    clocks = 'printf \'#!/bin/sh\\necho "GPU clocks set to \\\\"(gpuClkMin 300, gpuClkMax 2200)\\\\""\\n\' >/opt/nvidia-smi; chmod 755 /opt/nvidia-smi'
    on_all({node: f"{LIFE}{clocks}\n{OOM if node == 'spark2' else ''}" for node in NODES})
    return looked()


@pytest.fixture(scope="module")
def applied(before: dict[str, str]) -> dict[str, str]:
    """Everything set; what it looks like then."""
    assert all(count > 0 for count in site().values())
    return looked()


def test_faults_on_different_nodes_are_reported_at_once_and_nothing_changes(before: dict[str, str]) -> None:
    on_all(FAULTS)
    faulty = looked()
    try:
        code, said = play(playbook="preflight.yml")
        same(faulty, looked())
    finally:
        on_all(HEALED)
    assert code != 0
    assert len(re.findall(r"^fatal: ", said, flags=re.MULTILINE)) == 1
    text = " ".join(said.split())
    for (node, check), (found, cure) in FOUND.items():
        line = re.search(rf"{node}: {re.escape(check)} error: found (.*?)(?= spark\d: |$)", text)
        assert line, f"{node} {check} is not in: {said}"
        assert found in line[1], line[1]
        assert cure in line[1], line[1]
    errors = re.findall(r"(spark\d): ([\w.]+) error: found", text)
    assert sorted(set(errors)) == sorted(FOUND)
    same(before, looked())


def test_settings_are_in_force_and_a_second_run_changes_nothing(applied: dict[str, str]) -> None:
    for node in NODES:
        assert values(node) == ["10", "0", "0", "0", "45056", "10"]
        assert on(node, f"head -n 1 {THP}") == "madvise"
        fstab = on(node, "cat /etc/fstab").splitlines()
        assert "# gb10.ring: /swap.img\tnone swap sw 0 0" in fstab
        assert "# gb10.ring: LABEL=swap2 none swap defaults,pri=5" in fstab
        assert on(node, "readlink /etc/systemd/system/data-swap.swap") == "/dev/null"
        assert on(node, "systemctl get-default") == "multi-user.target"
        assert on(node, "systemctl is-active gb10-ring-clock-lock") == "active"
        assert on(node, "systemctl show -p DefaultLimitMEMLOCK --value").strip()
        upgrades = on(node, "systemctl show -p ExecCondition --value apt-daily-upgrade.service")
        assert "systemctl is-active --quiet gb10-ring-engine.service" in upgrades
        assert on(node, STATE).splitlines()[-1] == "b false"  # logind's own answer
    assert on("spark2", "systemctl is-active earlyoom || true") == "inactive"
    login = ctl("ssh", "spark1", "--", "sh -c 'ulimit -Sl; ulimit -Hl'").split()
    assert login == ["4096", "4096"]
    assert site() == dict.fromkeys(NODES, 0)


def test_drift_is_reported_and_repaired_where_it_is(applied: dict[str, str]) -> None:
    on_all(
        {
            "spark1": f"echo 60 >/proc/sys/vm/swappiness; rm /etc/security/limits.d/90-gb10-ring.conf; {nccl('2.30.4')}",
            "spark2": "systemctl -q enable --now earlyoom; sed -i 's/^# gb10.ring: LABEL/LABEL/' /etc/fstab",
            "spark3": nccl("2.30.7+cuda13.0 NCCL_IB_SUBNET_AWARE_ROUTING"),
        }
    )
    engine = {"engine_overrides": {"nccl": True, "executable": f"{VENV}/bin/vllm"}}
    code, said = play("--tags", "verify", "-e", json.dumps({**WANTED, **engine, "verify_roles": ["rdma", "memory"]}))
    on_all(f"rm -rf {VENV}")
    text = " ".join(said.split())
    assert code != 0
    for found in (
        "spark1: memory.sysctl error: found vm.swappiness = 60",
        "spark1: rdma.memlock error: found /etc/security/limits.d/90-gb10-ring.conf absent",
        "spark2: memory.oom_daemon error: found earlyoom.service",
        "spark2: memory.swap_boot error: found /etc/fstab: LABEL=swap2",
        f"spark1: rdma.nccl_library error: found {VENV}/lib/libnccl.so.2 2.30.4 without subnet-aware routing",
        f"spark2: rdma.nccl_library warning: found {VENV} is not on the node yet",
    ):
        assert found in text, said
    assert "spark3: memory" not in text and "spark3: rdma.nccl" not in text
    counts = site()
    assert counts["spark1"] == 2 and counts["spark2"] == 2 and counts["spark3"] == 0
    same(applied, looked())


def test_a_reboot_keeps_it(applied: dict[str, str]) -> None:
    ctl("node", "reboot", "spark2")
    until("spark2", "systemctl is-active -q gb10-ring-clock-lock")
    same(applied, looked())
    assert site() == dict.fromkeys(NODES, 0)


def test_room_is_made_or_refused_with_its_arithmetic(applied: dict[str, str]) -> None:
    """By the profile alone: no variable of the role says what the engine takes."""
    engine = {"weights_gib": 1000, "graphs_gib": 2, "options": {"gpu-memory-utilization": None}}
    need = {"engine_overrides": engine, "memory_engine_wait_s": 1}
    code, said = play("-e", json.dumps(need), playbook="../tests/lab/playbooks/page_cache.yml")
    text = " ".join(said.split())
    assert code != 0
    for node in NODES:
        assert f"{node}: no room for the engine, which was not started: MemAvailable is" in text, said
        assert on(node, "head -n 1 /proc/sys/vm/drop_caches") == "3"
    assert "1000 weights + 0 activations + 2 graphs = 1002.0 GiB" in text
    assert "Held by:" in text


ENGINE = """
printf '[Service]\\nExecStart=/usr/bin/python3 /opt/engine.py\\n[Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/gb10-ring-engine.service
mkdir -p /etc/gb10-ring; printf '{"url": "http://127.0.0.1:8123"}' >/etc/gb10-ring/engine.json
cat >/opt/engine.py <<'X'
import http.server, os
class Head(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("/run/engine-ready") else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 8123), Head).serve_forever()
X
systemctl daemon-reload; systemctl -q enable gb10-ring-engine; systemctl start gb10-ring-engine
"""


def test_the_reserve_is_there_only_while_the_engine_serves(applied: dict[str, str]) -> None:
    """The unit is bound to the engine's; a small server stands for the head here."""
    on("spark1", ENGINE)
    until("spark1", "systemctl is-active -q gb10-ring-memory-serving")
    assert values("spark1")[4:] == ["45056", "10"]
    on("spark1", "touch /run/engine-ready")
    until("spark1", "[ $(head -n 1 /proc/sys/vm/min_free_kbytes) = 1048576 ]")
    assert values("spark1") == ["10", "0", "0", "0", "1048576", "200"]
    on("spark1", "systemctl kill --kill-whom=main -s KILL gb10-ring-memory-serving; systemctl stop gb10-ring-engine")
    until("spark1", "[ $(head -n 1 /proc/sys/vm/min_free_kbytes) = 45056 ]")
    assert values("spark1")[4:] == ["45056", "10"]
    on("spark1", "systemctl start gb10-ring-engine")
    until("spark1", "[ $(head -n 1 /proc/sys/vm/min_free_kbytes) = 1048576 ]")


def test_uninstall_brings_every_file_back_byte_for_byte(before: dict[str, str], applied: dict[str, str]) -> None:
    tags = ("--tags", "engine,memory,rdma")
    code, said = play(*tags, playbook="uninstall.yml")
    assert code == 0, said
    on("spark1", "rm /opt/engine.py")
    same(before, looked())
    assert [on(node, "ls /var/lib/gb10-ring/*before* 2>/dev/null | wc -l") for node in NODES] == ["0"] * 3
    code, said = play(*tags, playbook="uninstall.yml")
    assert (code, changed(said)) == (0, dict.fromkeys(NODES, 0)), said


def test_the_machine_that_runs_the_lab_has_its_own_settings_still(machine: dict[str, str]) -> None:
    assert of_the_machine() == machine
