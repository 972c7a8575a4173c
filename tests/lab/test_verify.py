# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify.yml on a site of three: quick, all green, changes nothing; then planted faults, each reported with node and cure and nothing else.

Runs inside the controller namespace of a freshly booted lab, by tools/verify as a user's script does: `make verify-test` the healthy site,
warnings, and the faults that can be planted together; `make verify-full` the other faults. The faults are in verify_faults.py.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ansible_collections.gb10.ring.tests.browser import looks
from ansible_collections.gb10.ring.tests.browser.chromium import Browser
from site_run import CHECKOUT, INVENTORY, NODES, ctl, on, play
from verify_faults import ROUNDS, WANTED, Fault, Round

# Files of the system and of ours with their times, units, addresses, routes, kernel settings. Left out: what every login and every
# Ansible task touches on any machine (the journal, Ansible's temporary folder, sessions), and services that only asking starts for a
# while (systemd-timedated behind timedatectl).
LOOK = r"""
find /etc /usr /opt /root /home /srv /boot /var /tmp -xdev \( -path /root/.ansible -o -path /var/log -o -path /var/lib/systemd -o -path /tmp \) \
  -prune -o \( -type f -o -type l \) -printf '%p %s %m %T@ %l\n' | sort
find /var/lib/gb10-ring -printf '%p %y %s %m %T@ %l\n' | sort
for file in /proc/sys/vm/* /proc/swaps; do echo "$file $(head -1 $file 2>/dev/null)"; done
ip -4 -o addr; ip -o link | sed 's/ *state .*//'; ip route show table all
systemctl list-unit-files --no-legend
{ ls -A /tmp /run/systemd/system /run/systemd/transient 2>/dev/null
  systemctl list-units --all --no-legend --plain --type service,socket,timer,target,path,mount | sort
  for unit in $(systemctl list-units --no-legend --plain --type service | cut -d' ' -f1); do
    systemctl show -p Id,InvocationID,NRestarts $unit | tr '\n' ' '; echo
  done; } | grep -v 'user@\|user-runtime-dir@\|run-user-\|session-\|ssh.*@\|systemd-timedated\|systemd-hostnamed'
"""
# Each node keeps its rank's rows beside the shards, as a group of this size does. A supervisor that is switched off has to stay a fault of
# its own: after the usual 30 s of silence the others would end the group.
SITE = {
    "checkpoint_engram_rule": "vllm",
    "checkpoint_engram_placement": "directory",
    "engine_group_silence_s": 600,
}
QUIET = 0.25  # of the processors' time, at most, that other work may take when verify.yml is timed
QUIET_WITHIN = 120.0  # s
TOGETHER = "files and settings"
SCHEMA = json.loads((CHECKOUT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


def verify(folder: Path, *extra: str, **variables: Any) -> tuple[int, str, dict[str, Any]]:
    """Exit status of tools/verify, output and JSON report of a run."""
    paths = {
        "verify_html_path": str(folder / "verify.html"),
        "verify_junit_path": str(folder / "verify.xml"),
        "verify_history_path": str(folder / "history"),
    }
    (folder / "verify.json").unlink(missing_ok=True)
    given = json.dumps({**paths, **SITE, **variables})
    argv = ["tools/verify", "--report", str(folder / "verify.json"), "-i", str(INVENTORY / "ring.yml"), "-e", given]
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*argv, *extra], cwd=CHECKOUT, capture_output=True, text=True, timeout=600, check=False, env=env
    )
    output = done.stdout + done.stderr
    assert (folder / "verify.json").exists(), output
    report: dict[str, Any] = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    return done.returncode, output, report


def busy(seconds: float) -> float:
    """Part of the processors' time that was used meanwhile."""

    def times() -> tuple[int, int]:
        values = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
        return sum(values), values[3] + values[4]  # idle, and waiting for a disk

    whole, idle = times()
    time.sleep(seconds)
    later_whole, later_idle = times()
    return 1 - (later_idle - idle) / max(later_whole - whole, 1)


def settled() -> float:
    """Wait for other work to end, site.yml's own after-effects first of all, but not for ever; how busy the machine still is."""
    limit = time.monotonic() + QUIET_WITHIN
    used = busy(2)
    while used > QUIET and time.monotonic() < limit:
        used = busy(2)
    return used


@pytest.fixture(scope="module", autouse=True)
def site() -> None:
    code, output = play("-e", json.dumps(SITE))
    assert code == 0, output


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def healthy(folder) -> dict[str, Any]:
    """A run on a healthy site: what it was, how long it took, and the nodes before and after."""
    used = settled()
    before = {node: on(node, LOOK) for node in NODES}
    started = time.monotonic()
    code, output, report = verify(folder)
    seconds = time.monotonic() - started
    after = {node: on(node, LOOK) for node in NODES}
    shutil.copy(folder / "verify.html", folder / "healthy.html")
    print(f"verify.yml took {seconds:.1f} s; the machine was {used:.0%} busy before")
    return {
        **{"before": before, "after": after, "code": code, "output": output, "report": report},
        **{"seconds": seconds, "busy": used},
    }


def failed(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The failed checks; notes are no failures."""
    return [check for check in report["checks"] if not check["ok"] and check["severity"] != "info"]


def test_a_healthy_site_is_all_green(healthy):
    report = healthy["report"]
    assert failed(report) == []
    assert healthy["code"] == 0, healthy["output"]
    assert (report["result"], report["counts"]["errors"], report["counts"]["warnings"]) == ("ok", 0, 0)
    assert report["counts"]["notes"] == 0, [check for check in report["checks"] if not check["ok"]]
    subjects = {check["id"].partition(".")[0] for check in report["checks"]}
    assert {"preflight", "fabric", "rdma", "memory", "checkpoint", "engine"} <= subjects
    assert re.search(r"verify: all \d+ checks hold", healthy["output"])


@pytest.mark.full  # on a machine that does nothing else
def test_it_takes_less_than_20_s(healthy):
    """The first run counts. Three nodes and the controller share the machine."""
    assert healthy["seconds"] < 20


def test_it_changes_nothing(healthy):
    for node in NODES:
        before, after = healthy["before"][node].splitlines(), healthy["after"][node].splitlines()
        assert len(before) > 3000
        difference = "\n".join(difflib.unified_diff(before, after, n=0, lineterm=""))
        assert not difference, f"{node}:\n{difference}"
    recap = re.findall(r"^(spark\d)\s+: .*changed=(\d+)", healthy["output"], re.MULTILINE)
    assert recap == [(node, "0") for node in NODES]


def test_the_report_is_as_its_schema_says_and_shows_the_ring(healthy, folder):
    report = healthy["report"]
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert {(end["state"], end["mtu"]) for leg in report["site"]["legs"] for end in leg["ends"]} == {("ok", 9000)}
    assert [node["disk"]["revisions"][0]["active"] for node in report["site"]["nodes"]] == [True] * 3
    assert all(node["memory"]["weights"] and node["memory"]["available"] for node in report["site"]["nodes"])
    page = (folder / "verify.html").read_text(encoding="utf-8")
    assert "All good" in page
    assert (page.count('data-bar="disk"'), page.count('data-bar="memory"')) == (3, 3)
    assert 'data-bar="engram"' in page
    assert 'failures="0"' in (folder / "verify.xml").read_text(encoding="utf-8")
    assert list((folder / "history").iterdir())


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium")
    assert program, "chromium is not installed; `make verify-test` installs it"
    made = Browser(program, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


def look_at(browser: Browser, page: Path, width: int, drawing: str, empty: int = 0) -> list[str]:
    """States of the legs as they are drawn, and all that has to hold of any report at this width."""
    looks.offline_and_fitting(browser, page.as_uri(), width)
    drawn = looks.drawing(browser, drawing)
    words = browser.value(f"{drawn}.textContent")
    for expected in (*NODES, "198.19.0.1", "198.19.5.1", "MTU 9000"):
        assert expected in words
    assert set(looks.bars(browser, empty)) == {"disk", "engram", "memory"}
    assert len(looks.readable(browser, width)) > 300
    return sorted(state for state, _colour in looks.wires(browser, drawing))


@pytest.mark.parametrize(("width", "drawing"), [(390, "chain"), (1440, "ring")])
def test_its_page_is_readable_in_a_browser(healthy, folder, browser, width, drawing):
    assert healthy["code"] == 0
    assert look_at(browser, folder / "healthy.html", width, drawing) == ["ok"] * 6


@pytest.mark.parametrize(("width", "drawing"), [(390, "chain"), (1440, "ring")])
def test_the_page_of_a_site_with_faults_is_readable_too(with_faults, folder, browser, width, drawing):
    with_faults(TOGETHER)
    states = look_at(browser, folder / f"{TOGETHER}.html", width, drawing, empty=1)  # of the role that cannot look
    assert states == ["failed"] * 3 + ["ok"] * 3  # MTU, address, GID
    assert browser.value("document.querySelector('#todo').textContent").count("spark") >= len(ROUNDS[TOGETHER].faults)


@pytest.mark.parametrize(("words", "status"), [((), 0), (("--warnings",), 2)])
def test_warnings_alone_count_by_option(folder, words, status):
    foreign = next(fault for fault in ROUNDS[TOGETHER].faults if fault.name == "foreign file")
    act(foreign, foreign.make)
    try:
        code, output, report = verify(folder, *words, "--tags", "memory")
    finally:
        act(foreign, foreign.undo)
    assert [(check["node"], check["id"]) for check in failed(report)] == [(foreign.node, foreign.id)]
    assert (report["result"], code) == ("warnings", status), output


def test_tags_choose_a_part(folder):
    code, output, report = verify(folder, "--tags", "memory,rdma")
    assert code == 0, output
    assert {check["id"].partition(".")[0] for check in report["checks"]} <= {"memory", "rdma"}
    assert len(report["checks"]) > 12


def test_a_page_that_cannot_be_written_fails_and_hides_nothing(folder):
    code, output, report = verify(folder, "--tags", "memory", verify_html_path="/dev/null/verify.html")
    assert (code, report["result"]) == (1, "ok"), output
    assert "cannot write /dev/null/verify.html" in output
    assert re.search(r"verify: all \d+ checks hold", output)


def test_a_run_on_one_node_judges_that_node(folder):
    """The cables to its neighbours are left out, as a note; everything that the node itself shows is judged."""
    code, output, report = verify(folder, "--limit", "spark2")
    assert code == 0, output
    assert failed(report) == []
    assert {check["node"] for check in report["checks"]} == {"spark2"}
    held = {check["id"] for check in report["checks"] if check["ok"]}
    assert {f"fabric.{rung}" for rung in ("presence", "carrier", "address", "mtu", "ping", "subnet")} <= held
    notes = {check["id"]: check["found"] for check in report["checks"] if not check["ok"]}
    assert set(notes) == {"fabric.cabling", "checkpoint.engram_tiles"}
    assert "not judged towards spark1, spark3" in notes["fabric.cabling"]


def act(fault: Fault, command: str) -> None:
    if command.startswith("ctl "):
        ctl(*shlex.split(command)[1:])
    else:
        on(fault.node, command)


def run(planned: Round, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """verify.yml with all faults of a round; they are taken back whatever happens."""
    planted = []
    try:
        everywhere(planned.before)
        for fault in planned.faults:
            planted.append(fault)
            act(fault, fault.make)
        tags = ("--tags", planned.tags) if planned.tags else ()
        return verify(folder, *tags, **planned.variables)
    finally:
        for fault in reversed(planted):
            act(fault, fault.undo)
        everywhere(planned.after)


def everywhere(command: str) -> None:
    for node in NODES if command else ():
        on(node, command)


@pytest.fixture(scope="module")
def with_faults(folder):
    """The report of a run with all faults of a round, made once; its page is kept under the round's name."""
    made: dict[str, tuple[int, str, dict[str, Any]]] = {}

    def report(name: str) -> tuple[int, str, dict[str, Any]]:
        if name not in made:
            made[name] = run(ROUNDS[name], folder)
            shutil.copy(folder / "verify.html", folder / f"{name}.html")
        return made[name]

    return report


def marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.full] if ROUNDS[name].full else []


def test_every_fault_of_the_list_is_planted():
    planted = [fault.name for planned in ROUNDS.values() for fault in planned.faults]
    assert len(WANTED) == 25
    assert set(WANTED) <= set(planted)
    assert len(planted) == len(set(planted))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, marks=marks(name), id=f"{name}-{fault.name}")
        for name in ROUNDS
        for fault in ROUNDS[name].faults
    ],
)
def test_a_fault_is_reported_with_node_and_cure(with_faults, name, fault):
    code, output, report = with_faults(name)
    assert code == 1
    own = [check for check in failed(report) if (check["node"], check["id"]) == (fault.node, fault.id)]
    named = [check for check in own if fault.found in check["found"]]
    assert named, own
    assert fault.cure in named[0]["cure"]
    assert f"{fault.node}: {fault.id}" in output
    elsewhere = [check["found"] for check in failed(report) if check["id"] == fault.id and check["node"] != fault.node]
    assert [found for found in elsewhere if fault.found in found] == []
    assert [found for found in elsewhere if fault.others not in found] == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ROUNDS])
def test_nothing_else_is_reported(with_faults, name):
    _code, _output, report = with_faults(name)
    expected = set().union(*(fault.failed for fault in ROUNDS[name].faults))
    found = {(check["node"], check["id"]) for check in failed(report)}
    assert found == expected, [check for check in failed(report) if (check["node"], check["id"]) not in expected]


@pytest.mark.full
def test_only_the_legs_of_a_cut_cable_are_failed(with_faults):
    _code, _output, report = with_faults("cables and devices")
    legs = report["site"]["legs"]
    bad = [(leg["cable"], end["node"], end["port"]) for leg in legs for end in leg["ends"] if end["state"] != "ok"]
    assert sorted(bad) == [(1, "spark1", 0)] * 2 + [(1, "spark2", 1)] * 2


@pytest.mark.full
def test_an_unreachable_node_is_one_failed_check_and_hides_nothing(folder):
    ctl("node", "kill", "spark3")
    try:
        code, _output, report = verify(folder, "--tags", "preflight,checkpoint")
    finally:
        ctl("node", "start", "spark3")
    assert code == 1
    assert [(check["node"], check["id"]) for check in failed(report)] == [("spark3", "preflight.reachable")]
    for node in ("spark1", "spark2"):
        assert {"preflight.os", "checkpoint.files"} <= {
            check["id"] for check in report["checks"] if check["node"] == node
        }
