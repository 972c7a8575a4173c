"""`plan.yml` and the overlap check on the lab: a range that a node uses already is named by preflight, and nothing changes.

Runs inside the controller namespace of a lab (`lab/ctl exec -- pytest -q tests/lab/test_plan.py`); leaves it as it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from site_run import CHECKOUT, INVENTORY, NODES, on

LOOK = "find /etc/netplan /run/netplan -type f -printf '%p %s %T@\\n' 2>/dev/null | sort; ip -4 -o addr; ip -4 route show table all"


def playbook(name: str, *extra: str) -> tuple[int, str]:
    """Exit status and output of a playbook; timeout 60 s."""
    done = subprocess.run(
        ["ansible-playbook", f"playbooks/{name}.yml", "-i", str(INVENTORY / "ring.yml"), *extra],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def drawing(path) -> str:
    return json.dumps({"plan_svg_path": str(path)})


@pytest.fixture
def taken() -> Iterator[dict[str, str]]:
    """spark2 has a bridge in the subnet of a leg between two others, spark3 a route that holds two legs of its own."""
    on("spark2", "ip link add br-test type bridge && ip addr add 198.19.4.77/24 dev br-test && ip link set br-test up")
    on("spark3", "ip route add 198.19.2.0/23 via 198.18.0.1")
    try:
        yield {node: on(node, LOOK) for node in NODES}
    finally:
        on("spark2", "ip link del br-test")
        on("spark3", "ip route del 198.19.2.0/23")


def test_the_plan_is_drawn_without_a_look_at_the_nodes(tmp_path):
    path = tmp_path / "reports/plan.svg"
    code, output = playbook("plan", "-e", drawing(path))
    assert code == 0, output
    assert re.search(
        r"^ +3 +1 +198\.19\.5\.0/24 +spark3:0 +enP2p1s0f0np0 +198\.19\.5\.3 +spark1:1 ", output, re.MULTILINE
    )
    assert "spark1  " not in output.split("PLAY RECAP")[1]
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    code, output = playbook("plan", "-e", drawing(path))
    assert (code, "changed=0" in output) == (0, True)


@pytest.mark.parametrize("command", [("plan", "--tags", "overlap"), ("fabric",)], ids=["plan.yml", "fabric.yml"])
def test_an_address_and_a_route_in_the_supernet_are_named_and_nothing_changes(tmp_path, taken, command):
    code, output = playbook(*command, "-e", drawing(tmp_path / "plan.svg"))
    assert code != 0
    assert (
        "spark2: preflight.overlap error: found 198.19.4.77/24 on br-test overlaps 198.19.4.0/24 (spark3:0 - spark1:1 rail 0)"
        in output
    )
    assert (
        "spark3: preflight.overlap error: found route 198.19.2.0/23 by enP7s7 overlaps "
        "198.19.2.0/24 (spark2:0 - spark3:1 rail 0), 198.19.3.0/24 (spark2:0 - spark3:1 rail 1)"
    ) in output
    assert "Set supernet" in output
    assert "spark1: preflight" not in output
    assert {node: on(node, LOOK) for node in NODES} == taken
