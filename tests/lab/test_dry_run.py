"""`site.yml --check --diff` on bare nodes: shows everything, changes nothing, exits 0. Runs first on a freshly booted lab (`make faults`)."""

from __future__ import annotations

import difflib
import re
from typing import Any

import pytest

from site_run import NODES, on, play

LOOK = (
    "find /etc /usr /opt /root /var/lib/gb10-ring /var/lib/dpkg -xdev \\( -type f -o -type l \\) -printf '%p %s %m %T@ %l\\n' "
    "| grep -v /.ansible/ | sort; ip -4 -o addr; cat /proc/sys/vm/swappiness /proc/swaps; systemctl list-unit-files --no-legend"
)


@pytest.fixture(scope="module")
def dry() -> dict[str, Any]:
    before = {node: on(node, LOOK) for node in NODES}
    code, output = play("--check", "--diff")
    return {"before": before, "code": code, "output": output, "after": {node: on(node, LOOK) for node in NODES}}


def test_it_exits_0_and_changes_nothing(dry):
    assert dry["code"] == 0, dry["output"]
    for node in NODES:
        before, after = str(dry["before"][node]).splitlines(), str(dry["after"][node]).splitlines()
        difference = "\n".join(difflib.unified_diff(before, after, n=0, lineterm=""))
        assert not difference, f"{node}:\n{difference}"


@pytest.mark.parametrize(
    ("what", "sample"),
    [
        ("/etc/netplan/60-gb10-ring.yaml", r"^\+ +- 198\.19\.4\.[13]/24"),
        ("/etc/sysctl.d/90-gb10-ring.conf", r"^\+vm\.swappiness = 10"),
        ("staging plan", r"^\+.*model-00047-of-00048\.safetensors .*fetch"),
        ("/etc/systemd/system/gb10-ring-engine.service", r"^\+ExecStart="),
    ],
)
def test_it_shows_each_kind_of_change_of_every_node(dry, what, sample):
    output = str(dry["output"])
    count = len(re.findall(sample, output, flags=re.MULTILINE))
    expected = 2 if "198" in sample else len(NODES)  # a leg has two ends
    assert count >= expected, f"{what}: {count} of {expected}"
