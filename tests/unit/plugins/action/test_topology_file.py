# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.gb10.ring.plugins.action import topology_file
from ansible_collections.gb10.ring.tests.unit.fixtures.cabling import World, ring, spark

RING = World(spark(3), list(ring(spark(3))))
ADDRESSES = {node: f"192.0.2.1{node[-1]}" for node in spark(3)}


def run(path, world=RING, check=False, lost=(), **arguments):
    arguments = {"path": str(path), "hosts": world.nodes, **arguments}
    task = SimpleNamespace(
        args=arguments, async_val=0, check_mode=check, diff=False, delegate_to=None, environment=None
    )
    loader = SimpleNamespace(path_dwim=str)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = topology_file.ActionModule(task, connection, SimpleNamespace(), loader, None, None)
    hostvars = {
        result["node"]: {"fabric_cabling_result": result, "ansible_host": ADDRESSES[result["node"]]}
        for result in world.results()
    }
    for node in lost:
        del hostvars[node]["fabric_cabling_result"]
    return action.run(task_vars={"hostvars": hostvars})


def test_the_file_is_written_once(tmp_path):
    path = tmp_path / "new" / "ring.yml"
    first = run(path)
    assert (first["changed"], first["failed"]) == (True, False)
    assert path.read_text(encoding="utf-8") == first["content"]
    assert first["msg"] == f"ring of spark1, spark2, spark3, written to {path}"
    assert first["diff"][0]["after"] == first["content"]
    assert not run(path)["changed"]


def test_check_mode_shows_the_file_and_writes_none(tmp_path):
    result = run(tmp_path / "ring.yml", check=True)
    assert result["changed"]
    assert "spark3" in result["diff"][0]["after"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("check", [False, True])
def test_another_file_is_replaced_with_consent_only(tmp_path, check):
    path = tmp_path / "ring.yml"
    path.write_text("mine\n", encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match=r"ring.yml is there and differs(.|\n)*discover_overwrite: true"):
        run(path, check=check)
    assert path.read_text(encoding="utf-8") == "mine\n"
    assert run(path, check=check, overwrite=True)["diff"][0]["before"] == "mine\n"
    assert (path.read_text(encoding="utf-8") == "mine\n") is check


def test_a_wrong_cable_is_a_failure_with_its_cure(tmp_path):
    world = World(spark(3), [("spark1:0", "spark2:0"), ("spark3:0", "spark1:1")])
    result = run(tmp_path / "ring.yml", world)
    assert result["failed"]
    assert "move the plug in spark2 P0 to spark2 P1" in result["msg"]
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_a_result_is_named(tmp_path):
    with pytest.raises(AnsibleActionFail, match="discover: found no result of spark3"):
        run(tmp_path / "ring.yml", lost=("spark3",))


def test_options_are_checked(tmp_path):
    with pytest.raises(AnsibleError, match="colour"):
        run(tmp_path / "ring.yml", colour="blue")


@pytest.mark.parametrize(
    ("host", "variables", "address"),
    [
        ("192.0.2.11", {}, "192.0.2.11"),
        ("spark1", {"ansible_host": "192.0.2.12"}, "192.0.2.12"),
        ("spark1.lan", {}, "192.0.2.13"),
    ],
)
def test_management_addresses(monkeypatch, host, variables, address):
    known = {"spark1.lan": "192.0.2.13"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *_rest: [(0, 0, 0, "", (known[name], 0))])
    assert topology_file.management_address(host, variables) == address


def test_a_name_without_an_address(monkeypatch):
    def fail(*_arguments):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(topology_file.DiscoverError, match="nowhere: no IPv4 address"):
        topology_file.management_address("nowhere", {})
