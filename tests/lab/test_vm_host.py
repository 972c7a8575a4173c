# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two virtual machines as they come: memory, modules and page cache of a kernel of their own, and all of it undone (`make test-vm`).

One story, in order, before that of test_vm.py: settings made and really in force, the page cache really dropped, a process that
really takes all memory really stopped by the guard, everything uninstalled. That swap stays off after a restart is shown there.
"""

from __future__ import annotations

import json
import re

import pytest
from test_vm import MACHINES, SWAP_AND_SWAPPINESS, changed, module, on, on_all, play

RESERVE = {
    "vm.min_free_kbytes": "16384",
    "vm.watermark_scale_factor": "20",
}  # for 1 GiB; set at once, since no engine serves here
SYSCTLS = {
    "vm.swappiness": "10",
    "vm.overcommit_memory": "0",
    "vm.watermark_boost_factor": "0",
    "vm.compaction_proactiveness": "0",
    **RESERVE,
}
MODULES = ("mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_cm", "rdma_ucm")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
READ_SYSCTLS = "\n".join(f"cat /proc/sys/{key.replace('.', '/')}" for key in SYSCTLS)
# Files, links and directories: content, mode and owner. Left out are package lists, and /var/lib/gb10-ring itself: the image comes with
# it, empty, and uninstalling removes empty directories of that name.
TREE = (
    r"find /etc /usr/local /var/lib/gb10-ring -xdev -mindepth 1 ! -path '/etc/apt*' ! -name '*.new' \( -type l -printf '%p -> %l\n' "
    r"-o -type d -printf '%p/ %m %U:%G\n' -o -type f -printf '%p %m %U:%G ' -exec sha256sum {} \; \) 2>/dev/null | sort"
)
STATE = (
    f"{TREE}\n{SWAP_AND_SWAPPINESS}\n{READ_SYSCTLS}\ncat {THP}\nsystemctl list-unit-files --state=masked --no-legend\n"
    "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'\n"
    # Those of RDMA, with what they bring; others come and go by themselves.
    "awk '$1 ~ /^(mlx|ib_|iw_|rdma_|psample$|tls$)/ {print $1}' /proc/modules | sort"
)
# Small limits for a machine of 1 GiB. The hog takes 25 MiB at a time, on an emulated processor.
LIMITS = {
    "serving_free_mib": 170,
    "loading_stop_mib": 170,
    "stop_free_mib": 170,
    "floor_mib": 150,
    "stop_after_s": 4,
    "growth_mib_s": 100,
    "least_growth_mib_s": 5,
    "interval_s": 1,
}
HOG = """\
import time
held = []
while True:
    held.append(b"x" * (25 << 20))
    time.sleep(0.5)
"""
ENGINE, GUARD = "gb10-ring-engine.service", "gb10-ring-guard.service"
ENGINE_UNIT = f"/etc/systemd/system/{ENGINE}"


def write(path: str, text: str) -> str:
    return f"cat >{path} <<'X'\n{text}X\n"


@pytest.fixture(scope="module")
def before() -> list[list[str]]:
    """Each machine as it came."""
    return [said.splitlines() for said in on_all(STATE)]


@pytest.fixture(scope="module")
def ready(before: list[list[str]]) -> str:
    """The hosts made ready; returns what the run said. The lists of packages may be of any age."""
    wanted = {"rdma_packages_cache_valid_time": 10**9, "memory_guard_limits": LIMITS, "memory_sysctls": RESERVE}
    return play("site", "--tags", "rdma,memory", "-e", json.dumps(wanted))


def test_swap_goes_now_and_for_good(ready: str) -> None:
    assert all(count > 0 for count in changed(ready)), ready
    for said in on_all(
        "awk 'NR > 1' /proc/swaps; swapon --show; grep swap /etc/fstab; systemctl list-units --no-legend '*.swap'"
    ):
        lines = said.splitlines()
        assert len(lines) == 1, said
        assert re.fullmatch(r"# gb10\.ring: /swap\.img none swap sw 0 0", lines[0])


def test_each_setting_is_in_force_in_the_kernel(ready: str, before: list[list[str]]) -> None:
    for said, earlier in zip(on_all(READ_SYSCTLS), before, strict=True):
        assert said.splitlines() == list(SYSCTLS.values())
        assert "60" in earlier  # vm.swappiness of before
    for said in on_all(f"cat {THP}"):
        assert "[madvise]" in said


def test_modules_are_loaded_now_and_at_boot(ready: str) -> None:
    for said in on_all("cat /proc/modules; echo; cat /etc/modules-load.d/90-gb10-ring.conf"):
        loaded, wanted = said.split("\n\n")
        names = {line.split()[0] for line in loaded.splitlines()}
        assert names.issuperset(MODULES)
        assert set(MODULES).issubset(wanted.split())


def test_the_page_cache_is_really_dropped(ready: str) -> None:
    fill = "find /usr/lib /boot -xdev -type f -size +1M -exec cat {} + >/dev/null; awk '/^Cached/ {print $2}' /proc/meminfo"
    filled = [int(said) for said in on_all(fill)]
    results = module("page_cache", node="{{ inventory_hostname }}", drop=True)
    left = [int(said) for said in on_all("awk '/^Cached/ {print $2}' /proc/meminfo")]
    for machine, full, rest in zip(MACHINES, filled, left, strict=True):
        assert results[machine]["dropped"], results[machine]
        assert rest < full - 40 * 1024, (machine, full, rest)


def test_the_guard_is_protected(ready: str) -> None:
    script = (
        f"cat /proc/$(systemctl show -p MainPID --value {GUARD})/oom_score_adj; "
        f"cat /sys/fs/cgroup/gb10guard.slice/memory.min /sys/fs/cgroup/gb10guard.slice/{GUARD}/memory.min; "
        f"awk '/^VmLck/ {{print ($2 > 5000)}}' /proc/$(systemctl show -p MainPID --value {GUARD})/status"
    )
    assert on_all(script) == ["-1000\n33554432\n33554432\n1"] * 2


def test_the_guard_stops_what_takes_all_memory_before_the_kernel_has_to(ready: str) -> None:
    unit = "[Service]\nExecStart=/usr/bin/python3 {}\nRestart=on-failure\nRestartSec=1\n"
    hog = write("/run/hog.py", HOG) + write(ENGINE_UNIT, unit.format("/run/hog.py"))
    idle = write(ENGINE_UNIT, unit.format("-c 'import time; time.sleep(10000)'"))
    reload = "systemctl daemon-reload"
    on_all(f"{hog}{reload}", f"{idle}{reload}; systemctl start {ENGINE}")
    over = f"for i in $(seq 90); do [ -s /var/lib/gb10-ring/memory-guard-last.json ] && exit; sleep 1; done; journalctl -u {GUARD}; exit 1"
    try:
        on("spark1", f"systemctl start {ENGINE}")
        on_all(over)
        first, second = on_all(
            f"journalctl -q -o cat --no-pager -u {GUARD} | grep -E 'stop|drop|knows'; systemctl show -p ActiveState --value {ENGINE}; "
            "journalctl -q -k --no-pager | grep -ciE 'out of memory|oom-kill' || true; cat /var/lib/gb10-ring/memory-guard-last.json"
        )
    finally:
        on_all(
            f"systemctl stop {ENGINE}; systemctl reset-failed {ENGINE} 2>/dev/null || true; rm -f {ENGINE_UNIT} /run/hog.py; {reload}"
        )
    for said in (first, second):
        state, killed_by_kernel = said.splitlines()[-3:-1]
        assert state in {"failed", "inactive"}
        assert killed_by_kernel == "0", said
    done = re.search(r"stop: .*; MemFree (\d+) -> (\d+)", first)
    assert done, first
    assert int(done[2]) > int(done[1]) + 100
    assert re.search(r"drop done \(the engine starts\): .*page cache (\d+) -> (\d+) MiB", first), first
    assert "spark2 (198.18.0.2) knows of the stop" in first
    assert "stop: spark1 says: " in second


def test_uninstalling_returns_the_machines(ready: str, before: list[list[str]]) -> None:
    said = play("uninstall", "--tags", "rdma,memory")
    assert all(count > 0 for count in changed(said)), said
    for machine, now, earlier in zip(MACHINES, on_all(STATE), before, strict=True):
        more, less = sorted(set(now.splitlines()) - set(earlier)), sorted(set(earlier) - set(now.splitlines()))
        assert (more, less) == ([], []), machine
