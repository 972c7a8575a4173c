# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cabling probe on the lab: rings of three and four with each fault, eight nodes in time, and the topology file rebuilt.

Runs inside the controller namespace; boots the nodes that it needs, so it starts from any lab of the instance and leaves a ring of three.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from site_run import CHECKOUT, INVENTORY, ctl, on

QUICK = ("-e", "fabric_cabling_duration=2", "-e", "fabric_cabling_carrier_timeout=2")
INVENTORIES = {3: INVENTORY / "ring.yml", 4: INVENTORY / "ring4.yml"}
RIGHT = "as_planned"


def boot(nodes: int) -> None:
    ctl("down", "--nodes-only")
    ctl("up", "--nodes", str(nodes), "--data-mib", "64", "--no-checkpoint")


def playbook(name: str, *extra: str, rc: int = 0) -> str:
    done = subprocess.run(
        ["ansible-playbook", name, *extra],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    said = done.stdout + done.stderr
    assert done.returncode == rc, said
    return said


def discover(nodes: int, *extra: str, rc: int = 0) -> str:
    """discover.yml with nothing but the management addresses."""
    connection = {
        "ansible_user": "root",
        "ansible_become": False,
        "ansible_ssh_common_args": f"-F '{os.environ['GB10_LAB']}/ssh_config'",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    addresses = "".join(f"198.18.0.{number}," for number in range(1, nodes + 1))
    return playbook("playbooks/discover.yml", "-i", addresses, "-e", json.dumps(connection), *extra, rc=rc)


@pytest.fixture(scope="module", params=[3, 4])
def ring(request: pytest.FixtureRequest) -> Iterator[int]:
    nodes: int = request.param
    boot(nodes)
    yield nodes


@pytest.fixture
def verdict(ring: int, tmp_path: Path) -> Callable[[], dict[str, Any]]:
    def look() -> dict[str, Any]:
        path = tmp_path / "verdict.json"
        playbook("tests/lab/playbooks/cabling.yml", "-i", str(INVENTORIES[ring]), *QUICK, "-e", f"verdict_path={path}")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    return look


def faults(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(finding["kind"], finding["ends"]) for finding in found["findings"]]


def test_all_right_and_the_ports_are_down_again(ring: int, verdict: Callable[[], dict[str, Any]]) -> None:
    found = verdict()
    assert (found["kind"], found["findings"]) == (RIGHT, [])
    assert found["order"] == [f"spark{number}" for number in range(1, ring + 1)]
    for node in found["order"]:
        assert on(node, "ip -br link | grep -c 'np[01].*DOWN'") == "4"
        assert on(node, "ls -A /run/gb10-ring/cabling") == ""


# Commands of `lab/ctl cable`, those that undo them, what is found, and (part of) the first cure.
FAULTS = {
    "one cable cut": (
        ["cut spark2:0"],
        ["heal spark2:0"],
        [("open", ["spark2 P0", "spark3 P1"])],
        "plug a cable from spark2 P0 into spark3 P1",
    ),
    "two cables swapped": (
        ["swap spark1:0 spark1:1"],
        ["swap spark1:0 spark1:1"],
        [("swapped", ["spark1 P0", "spark1 P1"])],
        "exchange the plugs in spark1 P0 and spark1 P1",
    ),
    "P0 to P0": (
        ["connect spark1:0 spark2:0"],
        ["connect spark1:0 spark2:1", "connect spark2:0 spark3:1"],
        [("same_port", ["spark1 P0", "spark2 P0"]), ("open", ["spark2 P0", "spark3 P1"])],
        "move the plug in spark2 P0 to spark2 P1",
    ),
    "rails crossed": (
        ["connect spark1:0 spark2:1 --crossed"],
        ["connect spark1:0 spark2:1"],
        [("crossed_rails", ["spark1 P0", "spark2 P1"])],
        "exchange the two netdevs of spark1 P0 and spark2 P1",
    ),
    "one direction silent": (
        ["deafen spark3:1"],
        ["undeafen spark3:1"],
        [("one_way", ["spark3 P1", "spark2 P0"])],
        "seat the cable at both ends",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_is_exact(fault: str, ring: int, verdict: Callable[[], dict[str, Any]]) -> None:
    make, mend, expected, cure = FAULTS[fault]
    for command in make:
        ctl("cable", *command.split())
    try:
        found = verdict()
    finally:
        for command in mend:
            ctl("cable", *command.split())
    assert faults(found) == expected
    assert found["findings"][0]["cure"].startswith(cure)
    concerned = {end.split()[0] for _kind, ends in expected for end in ends}
    assert {check["node"] for check in found["checks"] if check["ok"]}.isdisjoint(concerned)


def test_the_topology_file_is_rebuilt(ring: int, tmp_path: Path) -> None:
    path = tmp_path / "ring.yml"
    wanted = ("-e", f"discover_topology_file={path}", "-e", "discover_supernet=198.19.0.0/16", *QUICK)
    discover(ring, *wanted)

    def hosts(inventory: Path) -> dict[str, Any]:
        said = subprocess.run(
            ["ansible-inventory", "-i", str(inventory), "--list"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
        )
        listed = json.loads(said.stdout)
        names = ("ring_rank", "fabric_ports", "management_address", "management_interface")
        return {node: [variables[name] for name in names] for node, variables in listed["_meta"]["hostvars"].items()}

    assert hosts(path) == hosts(INVENTORIES[ring])


def test_eight_nodes_in_less_than_15_seconds(tmp_path: Path) -> None:
    boot(8)
    path = tmp_path / "ring.yml"
    try:
        discover(8, "--list-tasks")  # the first start of Ansible reads its own files from disk
        began = time.monotonic()
        discover(8, "-f", "8", "-e", f"discover_topology_file={path}")
        assert time.monotonic() - began < 15
        text = path.read_text(encoding="utf-8")
        assert [line.split()[-1] for line in text.splitlines() if "name:" in line] == [f"spark{n}" for n in range(1, 9)]
        ctl("cable", "connect", "spark4:0", "spark6:0")
        said = discover(8, *QUICK, "-f", "3", "-e", f"discover_topology_file={path}", rc=2)
        assert "found spark4 P0 is cabled to spark6 P0" in said
        assert "move the plug in spark4 P0 to spark7 P1" in said
        assert path.read_text(encoding="utf-8") == text
    finally:
        boot(3)


def test_a_wrong_cable_is_refused_before_any_address_is_written() -> None:
    ctl("cable", "swap", "spark1:0", "spark1:1")
    try:
        said = playbook("playbooks/fabric.yml", "-i", str(INVENTORIES[3]), *QUICK, rc=2)
    finally:
        ctl("cable", "swap", "spark1:0", "spark1:1")
    assert "exchange the plugs in spark1 P0 and spark1 P1" in said
    for node in ("spark1", "spark2", "spark3"):
        assert on(node, "ls /etc/netplan/60-gb10-ring.yaml 2>/dev/null | wc -l") == "0"
