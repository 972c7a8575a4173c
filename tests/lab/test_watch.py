# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog on the lab's head, with short times, and the way back from a configuration that does not pass.

One story, in order: the site comes up, the engine is busy, it hangs, a rank dies, it hangs once more and is given up, a person starts it,
stops it, tries a configuration that does not pass, and removes everything.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request

import pytest

from site_run import INCIDENTS, NODES, incidents, new_incident, on, on_all, play, same

ENGINE, WATCH = "gb10-ring-engine.service", "gb10-ring-watch.service"
STATUS = "/run/gb10-ring-watch/status.json"
FILES = "find /etc /usr/local -xdev -type f -exec md5sum {} + | sort"
OTHER_FAULTS = "/run/gb10-lab/engine-faults-of-a-configuration"
LIMITS = {
    "interval_s": 1,
    "health_timeout_s": 1,
    "probe_timeout_s": 1.5,
    "failures": 2,
    "busy_grace_s": 30,
    "settle_s": 1,
    "ready_timeout_s": 30,
    "relaunches": 2,
    "window_s": 600,
}
# As blind as vLLM: a rank does not notice by itself that another one died.
BLIND = {"GB10_LAB_BLIND": "1"}
WANTED = {"engine_watch_limits": LIMITS, "engine_memory_wait_s": 20, "engine_overrides": {"env": BLIND}}
SHORT = ("--tags", "engine", "-e", json.dumps(WANTED))


def status() -> dict:
    return json.loads(on("spark1", f"cat {STATUS}"))


def phase(*wanted: str, seconds: float = 30) -> dict:
    """Wait until the watchdog is in one of these phases."""
    limit = time.monotonic() + seconds
    while (seen := status())["state"]["phase"] not in wanted:
        assert time.monotonic() < limit, f"wanted {wanted}: {seen}\n{journal()}"
        time.sleep(0.3)
    return seen


def journal() -> str:
    return on("spark1", f"journalctl -q --no-pager -o cat -u {WATCH}")


def load(word: str) -> None:
    """Keep the engine busy with something, or with nothing."""
    file = "/run/gb10-lab/engine-load"
    on("spark1", f"echo {word} >{file}" if word else f"rm -f {file}")


def runs() -> list[str]:
    return [on(node, f"systemctl show -p InvocationID --value {ENGINE}") for node in NODES]


def states() -> set[str]:
    return {on(node, f"systemctl is-active {ENGINE} || true") for node in NODES}


def health() -> str:
    """What the API says to the controller."""
    try:
        with urllib.request.urlopen("http://198.18.0.1:8000/health", timeout=2) as answer:
            return str(answer.status)
    except OSError as error:
        return str(error)


@pytest.fixture(scope="module")
def site() -> str:
    code, said = play("--tags", "fabric,checkpoint,engine", *SHORT[2:])
    assert code == 0, said
    return said


def test_it_runs_on_the_head_alone_and_arms(site: str) -> None:
    seen = phase("armed")
    assert seen["state"]["relaunches"] == []
    assert on("spark1", f"systemctl is-enabled {WATCH}") == "enabled"
    for node in NODES[1:]:
        assert on(node, f"systemctl show -p LoadState --value {WATCH}") == "not-found"
    assert {json.loads(on(node, "cat /var/lib/gb10-ring/engine/passed/passed.json"))["hash"] for node in NODES}


def test_a_second_run_changes_nothing(site: str) -> None:
    before = runs()
    code, said = play(*SHORT)
    assert code == 0, said
    assert set(re.findall(r"changed=(\d+)", said)) == {"0"}
    assert runs() == before
    assert "disarmed" not in journal()


def test_a_refused_change_leaves_every_file_and_the_serving_group_alone(site: str) -> None:
    """Another name and port than are served, which the watchdog would ask for if they were written."""
    files, before = on_all(FILES), runs()
    other = {"env": BLIND, "served_model_name": "another", "port": 8010}
    code, said = play(*SHORT, "-e", json.dumps({"engine_overrides": other, "engine_group_silence_s": 77}))
    assert code != 0
    assert "engine_restart_allowed" in said
    same(files, on_all(FILES))
    time.sleep(2 + LIMITS["failures"] * (LIMITS["interval_s"] + LIMITS["probe_timeout_s"]))
    seen = phase("armed")
    assert (seen["state"]["failed"], seen["state"]["relaunches"]) == (0, [])
    assert runs() == before
    assert "failure 1" not in journal()


def test_a_model_that_thinks_by_default_is_no_failure(site: str) -> None:
    on("spark1", "echo thinks >/run/gb10-lab/engine-faults")
    time.sleep(4)
    seen = phase("armed")
    on("spark1", "rm /run/gb10-lab/engine-faults")
    assert (seen["state"]["failed"], seen["state"]["problem"]) == (0, "")


def test_a_busy_engine_is_left_alone(site: str) -> None:
    before = runs()
    load("working")
    time.sleep(9)
    seen = phase("armed")
    assert "a completion: no answer within 1.5 s" in seen["state"]["problem"]
    assert (seen["state"]["failed"], seen["state"]["busy_since"]) == (0, None)
    load("stuck")
    time.sleep(4)
    seen = phase("armed")
    assert seen["state"]["busy_since"] and seen["state"]["failed"] == 0
    load("")
    time.sleep(3)
    assert phase("armed")["state"]["busy_since"] is None
    assert runs() == before
    assert "relaunch" not in journal()


def test_a_wedged_head_is_relaunched_with_the_logs_of_all_ranks(site: str) -> None:
    before, known = runs(), incidents()
    load("hangs")
    phase("stopping", "settling")
    load("")
    seen = phase("armed")
    assert len(seen["state"]["relaunches"]) == 1
    assert not set(before) & set(runs())
    assert (states(), health()) == ({"active"}, "200"), journal()
    new = new_incident(known)
    kept = on("spark1", f"ls {INCIDENTS}/{new}").split()
    assert set(kept) == {"diagnosis.txt", "incident.json", *(f"{node}.log" for node in NODES)}
    said = journal()
    for line in (
        "failure 1 of 2: /health: no answer within 1 s",
        "relaunch 1 of 2: failed 2 times: ",
        f"(incident {new})",
        "start the group: failed 2 times",
        "armed again: the group serves",
    ):
        assert said.count(line) == 1, f"{line}\n{said}"


def test_a_dead_rank_is_relaunched_and_diagnosed(site: str) -> None:
    before = runs()
    on("spark3", f"systemctl kill --signal=KILL {ENGINE}")
    phase("stopping", "settling", "starting")
    seen = phase("armed")
    assert len(seen["state"]["relaunches"]) == 2
    assert not set(before) & set(runs())
    assert (states(), health()) == ({"active"}, "200"), journal()
    text = on("spark1", f"cat {INCIDENTS}/{seen['reported']}/diagnosis.txt")
    assert "spark3: a process of the engine was killed from outside (killed): " in text
    assert seen["cause"].startswith("spark3: a process of the engine was killed")


def test_it_gives_up_after_its_relaunches_and_verify_says_so(site: str, tmp_path) -> None:
    before = runs()
    load("hangs")
    seen = phase("gave-up")
    time.sleep(4)
    assert runs() == before
    assert "gave up after 2 relaunches within 600 s, waiting for a person" in journal()
    report = tmp_path / "report.json"
    wanted = {"verify_roles": ["engine"], "verify_report_path": str(report), "engine_probe": False}
    code, said = play("-e", json.dumps(wanted), *SHORT[2:], playbook="verify.yml")
    load("")
    assert code != 0, said
    found = {check["id"]: check for check in json.loads(report.read_text(encoding="utf-8"))["checks"]}
    assert not found["engine.watchdog"]["ok"]
    assert f"gave up, waiting for a person: {seen['state']['why']}" in found["engine.watchdog"]["found"]
    assert "diagnosis.txt" in found["engine.watchdog"]["cure"]


def test_a_person_who_starts_it_anew_arms_it_again(site: str) -> None:
    code, said = play(*SHORT, "-e", "engine_state=restarted")
    assert code == 0, said
    seen = phase("armed")
    assert seen["state"]["relaunches"] == []


def test_a_deliberate_stop_disarms_it(site: str) -> None:
    code, said = play(*SHORT, "-e", "engine_state=stopped")
    assert code == 0, said
    seen = phase("waiting")
    assert "stopped by role" in seen["state"]["why"]
    time.sleep(5)
    assert states() == {"inactive"}
    assert "disarmed: stopped by role" in journal()


@pytest.mark.parametrize(
    ("env", "more", "told"),
    [
        ({"GB10_LAB_WRONG_SUMS": "1"}, {}, ("engine.chat", "answer '17'")),
        (
            {"GB10_LAB_ENGINE_FAULTS": OTHER_FAULTS},
            {},
            ("engine.acceptance_streams",),
        ),  # says nothing wrong when asked alone
        (
            {"GB10_LAB_WRONG_NOTE": "transport"},
            {"log_lines": [{"text": "NET/IB : Using", "want": "absent", "means": "planted"}]},
            ("engine.log error", "'NET/IB : Using' (planted)"),
        ),
        (
            {"GB10_LAB_WRONG_NOTE": "line"},
            {"ready_line": "never said", "ready_timeout_s": 12},
            ("engine.health error", "its log lacks 'never said'"),
        ),
    ],
)
def test_a_configuration_that_does_not_pass_goes_back_to_the_one_that_did(site: str, env, more, told) -> None:
    on("spark1", f"echo mixed-streams >{OTHER_FAULTS}")
    kept = [on(node, "cat /etc/gb10-ring/engine.json") for node in NODES]
    wrong = {"engine_overrides": {"env": {**BLIND, **env}, **more}, "engine_restart_allowed": True}
    code, said = play(*SHORT, "-e", json.dumps(wrong))
    assert code != 0
    assert [text for text in told if text not in said] == []
    assert "The group is back at lab, configuration " in said and ", and serves" in said
    assert [on(node, "cat /etc/gb10-ring/engine.json") for node in NODES] == kept
    assert (states(), health()) == ({"active"}, "200"), journal()
    phase("armed")
    assert (
        on(
            "spark1",
            "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value gb10-ring-engine)/environ | grep -c -e WRONG -e FAULTS || true",
        )
        == "0"
    )


def test_uninstalling_leaves_nothing_of_it(site: str) -> None:
    code, said = play("--tags", "engine", playbook="uninstall.yml")
    assert code == 0, said
    left = (
        f"ls -d /usr/local/lib/gb10-ring/engine_watch /etc/gb10-ring/watch* /run/gb10-ring-watch /var/lib/gb10-ring/engine "
        f"/etc/systemd/system/{WATCH} 2>/dev/null; find /etc/systemd -name '*{WATCH}*'; systemctl is-active {WATCH} | grep -x active"
    )
    for node in NODES:
        assert on(node, f"{left}; true") == ""
