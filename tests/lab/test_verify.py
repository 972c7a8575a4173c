# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify.yml on a site of three: quick, all green, changes nothing; then planted faults, each reported with node and cure and nothing else.

Runs inside the controller namespace of a freshly booted lab (`make verify-test`). The faults are in verify_faults.py.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from site_run import CHECKOUT, NODES, ctl, on, play
from verify_faults import ROUNDS, Fault, Round

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
SCHEMA = json.loads((CHECKOUT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


def verify(folder: Path, *extra: str, **variables: Any) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and JSON report of a run."""
    paths = {
        "verify_report_path": str(folder / "verify.json"),
        "verify_html_path": str(folder / "verify.html"),
        "verify_junit_path": str(folder / "verify.xml"),
        "verify_history_path": str(folder / "history"),
    }
    (folder / "verify.json").unlink(missing_ok=True)
    code, output = play(*extra, "-e", json.dumps({**paths, **SITE, **variables}), playbook="verify.yml")
    assert (folder / "verify.json").exists(), output
    report: dict[str, Any] = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    return code, output, report


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
    before = {node: on(node, LOOK) for node in NODES}
    started = time.monotonic()
    code, output, report = verify(folder)
    seconds = time.monotonic() - started
    after = {node: on(node, LOOK) for node in NODES}
    return {"before": before, "after": after, "code": code, "output": output, "report": report, "seconds": seconds}


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


def test_it_takes_less_than_20_s(healthy, folder):
    """Three nodes and the controller share this machine with whatever else runs: the best of at most three runs counts."""
    took = [healthy["seconds"]]
    while took[-1] >= 20 and len(took) < 3:
        started = time.monotonic()
        verify(folder)
        took.append(time.monotonic() - started)
    print(f"verify.yml took {', '.join(f'{seconds:.1f}' for seconds in took)} s")
    assert min(took) < 20


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


def test_tags_choose_a_part(folder):
    code, output, report = verify(folder, "--tags", "memory,rdma")
    assert code == 0, output
    assert {check["id"].partition(".")[0] for check in report["checks"]} <= {"memory", "rdma"}
    assert len(report["checks"]) > 12


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
    """The report of a run with all faults of a round, made once."""
    made: dict[str, tuple[int, str, dict[str, Any]]] = {}

    def report(name: str) -> tuple[int, str, dict[str, Any]]:
        if name not in made:
            made[name] = run(ROUNDS[name], folder)
        return made[name]

    return report


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name in ROUNDS for fault in ROUNDS[name].faults],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_fault_is_reported_with_node_and_cure(with_faults, name, fault):
    code, output, report = with_faults(name)
    assert code != 0
    own = [check for check in failed(report) if (check["node"], check["id"]) == (fault.node, fault.id)]
    named = [check for check in own if fault.found in check["found"]]
    assert named, own
    assert fault.cure in named[0]["cure"]
    assert f"{fault.node}: {fault.id}" in output
    elsewhere = [check["found"] for check in failed(report) if check["id"] == fault.id and check["node"] != fault.node]
    assert [found for found in elsewhere if fault.found in found] == []
    assert [found for found in elsewhere if fault.others not in found] == []


@pytest.mark.parametrize("name", ROUNDS)
def test_nothing_else_is_reported(with_faults, name):
    _code, _output, report = with_faults(name)
    expected = set().union(*(fault.failed for fault in ROUNDS[name].faults))
    found = {(check["node"], check["id"]) for check in failed(report)}
    assert found == expected, [check for check in failed(report) if (check["node"], check["id"]) not in expected]


def test_an_unreachable_node_is_one_failed_check_and_hides_nothing(folder):
    ctl("node", "kill", "spark3")
    try:
        code, _output, report = verify(folder, "--tags", "preflight,checkpoint")
    finally:
        ctl("node", "start", "spark3")
    assert code != 0
    assert [(check["node"], check["id"]) for check in failed(report)] == [("spark3", "preflight.reachable")]
    for node in ("spark1", "spark2"):
        assert {"preflight.os", "checkpoint.files"} <= {
            check["id"] for check in report["checks"] if check["node"] == node
        }
