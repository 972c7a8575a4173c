# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's group on the lab: started in order, refused before anything is touched, ended as a whole, stopped on purpose.

One story on one boot (`make engine-life`). The stand-in is as blind as vLLM here: it does not notice a dead rank by itself.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import pytest

from site_run import INCIDENTS, NODES, incidents, new_incident, on, on_all, play, same

ENGINE = "gb10-ring-engine.service"
TAGS = ("--tags", "fabric,checkpoint,engine")
OTHER_FAULTS = "/run/gb10-lab/engine-faults-of-a-configuration"
FILES = "find /etc /usr/local -xdev -type f -exec md5sum {} + | sort"


def overrides(**env: str) -> tuple[str, ...]:
    """Without the watchdog and the way back, which have a story of their own (test_watch.py)."""
    alone = {"engine_watch": False, "engine_rollback": False, "engine_memory_wait_s": 5}
    return ("-e", json.dumps({**alone, "engine_overrides": {"env": {"GB10_LAB_BLIND": "1", **env}}}))


def shown(node: str, *names: str) -> list[str]:
    return on(node, f"systemctl show -p {','.join(names)} {ENGINE}").splitlines()


def value(node: str, name: str) -> str:
    return shown(node, name)[0].partition("=")[2]


def runs() -> list[str]:
    """systemd's name of each rank's run."""
    return [value(node, "InvocationID") for node in NODES]


def active() -> list[str]:
    return [value(node, "ActiveState") for node in NODES]


def counts() -> list[int]:
    """How often each rank has been started."""
    return [int(on(node, f"journalctl -q -o cat -u {ENGINE} | grep -c ^Started")) for node in NODES]


def changed(output: str) -> set[str]:
    return set(re.findall(r"changed=(\d+)", output.partition("PLAY RECAP")[2]))


def all_off(seconds: float) -> float:
    """Wait until no rank runs; the seconds that it took."""
    began = time.monotonic()
    while any(value(node, "MainPID") != "0" for node in NODES):
        assert time.monotonic() - began < seconds, f"{active()}\n{journals()}"
    return time.monotonic() - began


def told_of_all(node: str, states: set[str], seconds: float) -> dict[str, Any]:
    """The status of the group as `node` tells it, once all ranks are in `states`: it hears of the others a moment later."""
    limit = time.monotonic() + seconds
    while True:
        status = json.loads(on(node, "cat /run/gb10-ring-group/status.json"))
        if {rank["state"] for rank in status["ranks"].values()} == states:
            return status
        assert time.monotonic() < limit, status
        time.sleep(0.2)


def journals() -> str:
    return "\n".join(f"{node}:\n{on(node, 'journalctl -q -o cat -n 20 -u gb10-ring-group')}" for node in NODES)


def look_at_incident(name: str, node: str) -> None:
    """Every node has the logs of all ranks, for root alone, and knows who was first."""
    for here in NODES:
        limit = time.monotonic() + 5
        while on(here, f"ls {INCIDENTS}/{name}/ || true").split() != [
            "incident.json",
            *(f"{one}.log" for one in NODES),
        ]:
            assert time.monotonic() < limit, journals()
        about = json.loads(on(here, f"cat {INCIDENTS}/{name}/incident.json"))
        assert about["node"] == node, about
        assert on(here, f"stat -c %a {INCIDENTS} {INCIDENTS}/{name} {INCIDENTS}/{name}/{node}.log").split() == [
            "700",
            "700",
            "600",
        ]
        for rank, one in enumerate(NODES):
            assert f"rank {rank} of 3 (gb10.ring)" in on(here, f"cat {INCIDENTS}/{name}/{one}.log")


@pytest.fixture(scope="module")
def site() -> str:
    code, said = play(*TAGS, *overrides())
    assert code == 0, said
    return said


def test_the_highest_rank_starts_first_and_the_head_last(site: str) -> None:
    began = [int(value(node, "InactiveExitTimestampMonotonic")) for node in NODES]
    assert began[0] > began[1] > began[2] > 0
    assert active() == ["active"] * 3
    assert incidents() == set()


def test_a_killed_rank_ends_the_group_and_every_log_is_kept(site: str) -> None:
    on("spark3", f"kill -KILL {value('spark3', 'MainPID')}")
    assert all_off(10) < 10
    name = new_incident(set())
    look_at_incident(name, "spark3")
    assert "status=9/KILL" in on("spark1", f"cat {INCIDENTS}/{name}/spark3.log")
    assert "this rank goes on, as vLLM would" in on("spark2", f"cat {INCIDENTS}/{name}/spark1.log")
    state = on("spark2", "gb10-ring-group status")
    assert "spark3  rank 2  failed" in state
    assert "spark1  rank 0  stopped" in state
    assert [value(node, "NRestarts") for node in NODES] == ["0"] * 3


def test_whatever_is_in_the_way_is_reported_together_and_nothing_is_touched(site: str) -> None:
    before = runs()
    on("spark1", "systemd-run -q --unit=taken python3 -m http.server 8000")
    on("spark2", "systemd-run -q --unit=stale bash -c 'exec -a VLLM::EngineCore sleep 600'")
    on("spark3", "systemd-run -q --unit=stale bash -c 'exec -a VLLM::Worker_TP2 sleep 600'")
    code, said = play("--tags", "engine", *overrides())
    assert code != 0
    assert "engine preflight, nothing was stopped or started: 3 of" in said
    assert re.search(r"spark1: engine\.ports error: found 8000 by pid \d+ python3", said)
    assert re.search(r"spark2: engine\.stale error: found pid \d+ VLLM::EngineCore", said)
    assert re.search(r"spark3: engine\.stale error: found pid \d+ VLLM::Worker_TP2", said)
    assert runs() == before
    on("spark1", "systemctl stop taken")
    for node in ("spark2", "spark3"):
        on(node, "systemctl stop stale")


def test_a_rank_that_dies_while_the_group_starts_ends_it_at_once(site: str) -> None:
    known, killed = incidents(), []

    def kill() -> None:
        before = value("spark3", "InvocationID")
        while value("spark3", "InvocationID") == before or value("spark3", "MainPID") == "0":
            time.sleep(0.05)
        on("spark3", f"kill -KILL {value('spark3', 'MainPID')}")
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    code, said = play("--tags", "engine", *overrides())
    ended = time.monotonic()
    killer.join()
    assert code != 0
    assert ended - killed[0] < 40, "it waited for the group's 60 s"
    assert all_off(10) < 10
    for node in NODES:
        assert f"{node}: engine.unit error" in said
    assert "status=9/KILL" in said
    name = new_incident(known)
    look_at_incident(name, "spark3")


def test_a_node_starts_the_group_and_a_changed_environment_restarts_it_once(site: str) -> None:
    known = incidents()
    assert on("spark1", "gb10-ring-group start --reason test") == "every rank runs"
    began = [int(value(node, "InactiveExitTimestampMonotonic")) for node in NODES]
    assert began[0] > began[1] > began[2]
    before, files = runs(), on_all(FILES)
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"))
    assert code != 0
    assert "engine_restart_allowed" in said
    assert runs() == before
    same(files, on_all(FILES))  # a boot, or an order, starts what has passed
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"), "--check", "--diff")
    assert code == 0, said
    assert "a run without --check ends here: the engine serves" in said
    assert "GB10_LAB_NOTE=other" in said
    assert runs() == before
    same(files, on_all(FILES))
    starts = counts()
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"), "-e", "engine_restart_allowed=true")
    assert code == 0, said
    after = runs()
    assert not set(after) & set(before)
    assert [count + 1 for count in starts] == counts()
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"))
    assert code == 0, said
    assert changed(said) == {"0"}
    assert runs() == after
    assert incidents() == known, "stopping on purpose is no incident"


def test_a_run_for_some_of_the_nodes_is_refused_and_nothing_is_touched(site: str) -> None:
    before, files = runs(), on_all(FILES)
    asked = ("--tags", "engine", "--limit", "spark3", *overrides(GB10_LAB_NOTE="other"), "-e", "engine_state=restarted")
    code, said = play(*asked)
    assert code != 0
    assert "leaves out spark1, spark2" in said
    assert (runs(), active()) == (before, ["active"] * 3)
    same(files, on_all(FILES))


def test_a_group_that_is_stopped_leaves_nothing_and_is_no_incident(site: str) -> None:
    known = incidents()
    on(
        "spark2",
        "echo left >/dev/shm/psm_left; systemd-run -q --unit=holder sh -c 'exec sleep 600 5>/dev/shm/psm_held'",
    )
    on("spark2", "for i in $(seq 50); do [ -e /dev/shm/psm_held ] && exit 0; sleep 0.1; done; exit 1")
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"), "-e", "engine_state=stopped")
    assert code == 0, said
    assert active() == ["inactive"] * 3
    assert on("spark2", "cd /dev/shm; ls psm_*; systemctl stop holder") == "psm_held"
    assert on("spark1", "ss -Hltn 'sport = :8000 or sport = :29500'") == ""
    assert incidents() == known
    status = told_of_all("spark3", {"stopped"}, 5)
    assert status["stopped"]["by"] == "role"
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"), "-e", "engine_state=stopped")
    assert code == 0, said
    assert changed(said) == {"0"}


def test_the_lone_rank_of_a_rebooted_node_ends_and_says_how_to_start_the_group(site: str) -> None:
    """The group is stopped, and systemd alone starts one rank, as at a boot of its node."""
    known = incidents()
    on("spark3", f"systemctl start --no-block {ENGINE}")
    limit = time.monotonic() + 40
    while "To start the group: `gb10-ring-group start`, or site.yml" not in journals():
        assert time.monotonic() < limit, journals()
        time.sleep(0.5)
    assert all_off(20) < 20
    assert incidents() == known
    told_of_all("spark1", {"stopped"}, 5)
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="other"))
    assert code == 0, said
    assert active() == ["active"] * 3


def test_ranks_that_systemd_starts_on_all_nodes_are_a_group(site: str) -> None:
    """As after a power cut: nobody has ordered it."""
    on("spark1", "gb10-ring-group stop --reason test")
    on_all(f"systemctl start --no-block {ENGINE}")
    told_of_all("spark1", {"running"}, 60)
    before = runs()
    time.sleep(15)  # longer than a rank that a boot began may be alone
    assert (active(), runs()) == (["active"] * 3, before), journals()


def test_a_lone_rank_is_no_group_that_serves(site: str) -> None:
    """Also where no supervisor has ended it yet; without consent, since nothing serves."""
    on("spark1", "gb10-ring-group stop --reason test")
    on("spark3", f"systemctl start --no-block {ENGINE}")
    code, said = play("--tags", "engine", *overrides(GB10_LAB_NOTE="third"))
    assert code == 0, said
    assert active() == ["active"] * 3


def passed() -> list[str]:
    """What is kept on each node as the way back."""
    return [json.loads(on(node, "cat /var/lib/gb10-ring/engine/passed/passed.json"))["hash"] for node in NODES]


def test_a_configuration_that_did_not_pass_is_asked_again_and_never_kept(site: str) -> None:
    """There is no way back here (engine_rollback: false): it goes on serving, and the next run finds it."""
    kept = passed()
    wrong = overrides(GB10_LAB_ENGINE_FAULTS=OTHER_FAULTS)  # says nothing wrong when asked alone, as engine.chat does
    on("spark1", f"mkdir -p $(dirname {OTHER_FAULTS}); echo mixed-streams >{OTHER_FAULTS}")
    for consent in (("-e", "engine_restart_allowed=true"), ()):
        code, said = play("--tags", "engine", *wrong, *consent)
        assert code != 0
        assert "engine.acceptance_streams" in said
        assert passed() == kept
    before = runs()
    code, said = play("--tags", "engine", *wrong, "-e", "engine_probe=false")
    assert code == 0, said
    assert (changed(said), passed(), runs()) == ({"0"}, kept, before)


def test_what_nobody_has_asked_is_asked_by_the_next_run(site: str) -> None:
    kept, right = passed(), overrides(GB10_LAB_NOTE="fourth")
    code, said = play(
        "--tags", "engine", *right, "-e", json.dumps({"engine_restart_allowed": True, "engine_probe": False})
    )
    assert code == 0, said
    assert passed() == kept
    before = runs()
    code, said = play("--tags", "engine", *right)
    assert code == 0, said
    assert runs() == before
    assert not set(passed()) & set(kept)
    code, said = play("--tags", "engine", *right)
    assert code == 0, said
    assert changed(said) == {"0"}
