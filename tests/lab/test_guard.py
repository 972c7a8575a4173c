# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory guard as a service on the lab's nodes: it goes by a memory file of each node, and stops the real group.

One story, in order: the site comes up, a prefill, a runaway on one node, the site again, a runaway of a rank that is not told,
everything uninstalled.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from site_run import NODES, TREE, on, on_all, play, same

MEMINFO = "/run/gb10-lab/meminfo"
ENGINE, GUARD = "gb10-ring-engine.service", "gb10-ring-guard.service"
GIB = 1024


def memory(node: str, free: int, cached: int) -> None:
    """Give a node these MiB."""
    lines = [f"MemFree: {free * 1024} kB", f"MemAvailable: {(free + cached) * 1024} kB", f"Cached: {cached * 1024} kB"]
    text = "\\n".join(lines)
    on(node, f"printf '{text}\\n' >{MEMINFO}.new && mv {MEMINFO}.new {MEMINFO}")


def status(node: str) -> dict:
    return json.loads(on(node, "cat /run/gb10-ring-guard/status.json"))


def until(node: str, condition: str, seconds: float) -> float:
    """Wait for a shell condition on a node; the seconds that it took."""
    began = time.monotonic()
    tries = int(seconds * 10)
    on(node, f"for i in $(seq {tries}); do if {condition}; then exit 0; fi; sleep 0.1; done; exit 1")
    return time.monotonic() - began


def journal(node: str) -> str:
    return on(node, f"journalctl -q --no-pager -o cat -u {GUARD}")


def phase(node: str, name: str) -> None:
    until(node, f'grep -q \'"phase": "{name}"\' /run/gb10-ring-guard/status.json', 15)


def stopped(node: str) -> str:
    """systemd calls a killed unit failed, unless its stop was under way by then."""
    return f"systemctl show -p ActiveState,MainPID --value {ENGINE} | xargs | grep -qxE '0 (failed|inactive)'"


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return on_all(TREE)


@pytest.fixture(scope="module")
def site(before: dict[str, str]) -> str:
    code, said = play("--tags", "fabric,memory,checkpoint,engine")
    assert code == 0, said
    return said


def test_it_is_armed_before_the_engine_and_sees_it_serve(site: str) -> None:
    for node in NODES:
        times = on(
            node,
            f"systemctl show -p ActiveEnterTimestampMonotonic --value {GUARD}; "
            f"systemctl show -p ExecMainStartTimestampMonotonic --value {ENGINE}",
        )
        armed, began = (int(line) for line in times.split())
        assert 0 < armed < began
        phase(node, "serving")
        said = journal(node)
        assert f"armed for {ENGINE}, engine idle: MemFree 10240" in said
        assert "drop done (the engine starts): MemFree 10240 -> 10240" in said
        assert all(status(node)["answered"].values())
        assert on(node, "cat /proc/sys/vm/drop_caches") == "3"
        assert on(node, "stat -c %a /etc/gb10-ring/memory-guard.token") == "600"
    assert len({on(node, "cat /etc/gb10-ring/memory-guard.token") for node in NODES}) == 1


def test_it_takes_little_memory_itself(site: str) -> None:
    used = on("spark1", f"cat /proc/$(systemctl show -p MainPID --value {GUARD})/smaps_rollup")
    kib = {line.split(":")[0]: int(line.split()[1]) for line in used.splitlines()[1:]}
    print(f"the guard: {kib['Rss']} KiB resident, {kib['Private_Dirty']} of them its own")
    assert kib["Rss"] < 18 * 1024
    assert kib["Private_Dirty"] < 10 * 1024


def test_a_prefill_costs_a_drop_and_nothing_else(site: str) -> None:
    on("spark2", "echo 0 >/proc/sys/vm/drop_caches")
    memory("spark2", 3 * GIB, 7 * GIB)
    until("spark2", '[ "$(cat /proc/sys/vm/drop_caches)" = 3 ]', 5)
    memory("spark2", 10 * GIB, 100)
    until("spark2", f"journalctl -q -u {GUARD} | grep -q 'drop done (MemFree below 4096 MiB): MemFree 3072 ->'", 5)
    assert on("spark2", f"systemctl is-active {ENGINE}") == "active"


def test_a_runaway_on_one_node_stops_the_group_once(site: str) -> None:
    memory("spark2", 900, 100)
    took = max(until(node, stopped(node), 10) for node in ("spark2", "spark1", "spark3"))
    assert took < 6
    until("spark2", f"journalctl -q -u {GUARD} | grep -q 'spark3.* knows of the stop'", 10)
    memory("spark2", 900, 100)
    time.sleep(2.5)
    said = journal("spark2")
    assert said.count("stop: ") == 1, said
    assert re.search(r"stop: 900 MiB are left and .*; MemFree 900 -> \d+, MemAvailable \d+ -> \d+, page cache", said), (
        said
    )
    for node in ("spark1", "spark3"):
        assert "stop: spark2 says: 900 MiB are left and" in journal(node)
        assert "knows of the stop" not in journal(node)
    for node in NODES:
        last = json.loads(on(node, "cat /var/lib/gb10-ring/memory-guard-last.json"))
        assert "900 MiB are left" in last["why"]
        assert last["told"] is (node != "spark2")
        assert on(node, f"systemctl show -p NRestarts --value {ENGINE}") == "0"
        assert on(node, f"systemctl list-jobs --no-legend {ENGINE}") == ""


def test_verify_tells_why_and_how_to_go_on(site: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    wanted = {"verify_roles": ["memory"], "verify_report_path": str(report)}
    code, said = play("-e", json.dumps(wanted), playbook="verify.yml")
    assert code == 0, said
    checks = json.loads(report.read_text(encoding="utf-8"))["checks"]
    for node in NODES:
        found = {check["id"]: check for check in checks if check["node"] == node}
        assert found["memory.guard"]["ok"], found["memory.guard"]
        assert found["memory.guard_peers"]["ok"], found["memory.guard_peers"]
        assert not found["memory.guard_stop"]["ok"]
        assert "900 MiB are left" in found["memory.guard_stop"]["found"]
        assert "run the engine role" in found["memory.guard_stop"]["cure"]


def test_the_site_starts_the_group_again_and_the_guard_with_it(site: str) -> None:
    memory("spark2", 10 * GIB, 100)
    code, said = play("--tags", "engine")
    assert code == 0, said
    for node in NODES:
        phase(node, "serving")
    memory("spark3", 900, 100)
    for node in NODES:
        until(node, stopped(node), 10)
    until("spark1", f"journalctl -q -o cat -u {GUARD} | grep -q 'stop: spark3 says: '", 5)
    memory("spark3", 10 * GIB, 100)


def test_uninstall_leaves_the_nodes_as_they_were(before: dict[str, str], site: str) -> None:
    """The guard, the engine, the checkpoint with consent, the network: files, links and directories."""
    code, said = play("-e", "checkpoint_remove=true", playbook="uninstall.yml")
    assert code == 0, said
    same(before, on_all(TREE))
    for node in NODES:
        units = on(
            node,
            "systemctl list-units --all --no-legend 'gb10guard*' 'gb10-ring*'; find /etc/systemd -name '*gb10*ring*'",
        )
        assert units == "", units
