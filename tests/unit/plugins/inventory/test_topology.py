# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin as ansible-inventory sees it, and the inventories that the collection ships."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[4]
INVENTORIES = CHECKOUT / "inventories"


def ansible_inventory(path: Path, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("ansible-inventory")
    return subprocess.run(
        [str(program), "-i", str(path), "--list"],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home),
            **environment,
        },
    )


@pytest.mark.parametrize(
    ("name", "shape", "size", "ports"),
    [
        ("lab", "ring", 3, 4),
        ("pair", "pair", 2, 2),
        ("ring3", "ring", 3, 4),
        ("ring4", "ring", 4, 4),
        ("switch", "switch", 3, 2),
    ],
)
def test_shipped_inventory(tmp_path, name, shape, size, ports):
    done = ansible_inventory(INVENTORIES / name / "ring.yml", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(done.stdout)
    names = [f"spark{rank + 1}" for rank in range(size)]
    assert listed["ring"]["hosts"] == names
    assert listed["head"]["hosts"] == names[:1]
    assert listed["workers"]["hosts"] == names[1:]
    hosts = listed["_meta"]["hostvars"]
    assert [hosts[host]["ring_rank"] for host in names] == list(range(size))
    assert {(hosts[host]["ring_shape"], hosts[host]["ring_size"], hosts[host]["fabric_mtu"]) for host in names} == {
        (shape, size, 9000)
    }
    assert [len(hosts[host]["fabric_ports"]) for host in names] == [ports] * size
    assert hosts["spark1"]["fabric_ports"][0]["address"] == ("198.19.0.1" if name == "lab" else "10.100.0.1")


def test_own_variables_may_be_templates(tmp_path):
    file = tmp_path / "ring.yml"
    file.write_text(
        """
plugin: gb10.ring.topology
shape: pair
nodes:
  - {name: a, management_address: 192.0.2.1, vars: {greeting: "{{ 'hello ' ~ ring_rank }}"}}
  - {name: b, management_address: 192.0.2.2}
"""
    )
    program = Path(sys.executable).with_name("ansible")
    done = subprocess.run(
        [str(program), "-i", str(file), "a", "-m", "ansible.builtin.debug", "-a", "var=greeting", "-o"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert "hello 0" in done.stdout, done.stderr


def test_problems_name_the_file_and_are_printed_together(tmp_path):
    file = tmp_path / "ring.yml"
    file.write_text("plugin: gb10.ring.topology\nshape: star\nmtu: 5\nnodes: []\n")
    done = ansible_inventory(file, tmp_path, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true")
    assert done.returncode != 0
    assert f"{file}: 2 problems:" in done.stderr
    assert "- shape: found 'star'; allowed: ring, pair or switch" in done.stderr
    assert "- mtu: found 5; allowed: a whole number from 1280 to 9216 (bytes)" in done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "found an empty file; allowed: a topology that starts with 'plugin: gb10.ring.topology'"),
        ("plugin: gb10.ring.topology\nshape: [ring\n", "not valid YAML"),
        ("plugin: gb10.ring.topology\n\tshape: ring\n", "not valid YAML"),
    ],
)
def test_unreadable_file(tmp_path, content, expected):
    file = tmp_path / "ring.yml"
    file.write_text(content)
    done = ansible_inventory(
        file, tmp_path, ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED="true", ANSIBLE_INVENTORY_ENABLED="gb10.ring.topology"
    )
    assert done.returncode != 0
    assert f"{file}: {expected}" in done.stderr
