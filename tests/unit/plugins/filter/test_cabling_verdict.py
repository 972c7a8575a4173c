# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.cabling_verdict import FilterModule
from ansible_collections.gb10.ring.tests.unit.fixtures.cabling import World, fabric_ports, ring, spark

cabling_verdict = FilterModule().filters()["cabling_verdict"]


def hostvars(world, cables=None):
    ports = fabric_ports(world.nodes, cables or [])
    found = {result["node"]: {"heard": result, "ring_shape": "ring"} for result in world.results()}
    if cables:
        for node, variables in found.items():
            variables["fabric_ports"] = ports[node]
    return found


def test_the_plan_is_that_of_the_hosts():
    names = ["spark1", "spark3", "spark2"]
    world = World(spark(3), list(ring(spark(3))))
    verdict = cabling_verdict(hostvars(world, list(ring(names))), names, "heard")
    assert verdict["kind"] == "other_order"
    assert verdict["order"] == names


def test_hosts_without_a_plan_are_compared_with_the_closest():
    world = World(spark(3), list(ring(["spark1", "spark3", "spark2"])))
    verdict = cabling_verdict(hostvars(world), spark(3), "heard")
    assert (verdict["kind"], verdict["order"]) == ("as_planned", ["spark1", "spark3", "spark2"])


def test_checks_of_one_node():
    world = World(spark(3), list(ring(spark(3))))
    verdict = cabling_verdict(hostvars(world), spark(3), "heard", node="spark2")
    assert [(check["node"], check["ok"]) for check in verdict["checks"]] == [("spark2", True)]


def test_a_host_without_a_result_is_named():
    found = hostvars(World(spark(3), list(ring(spark(3)))), list(ring(spark(3))))
    found["spark3"]["heard"] = {"failed": True, "msg": "no"}
    verdict = cabling_verdict(found, spark(3), "heard")
    assert {finding["kind"] for finding in verdict["findings"]} == {"unjudged"}


def test_ports_that_contradict_each_other_are_one_error():
    found = hostvars(World(spark(3), list(ring(spark(3)))), list(ring(spark(3))))
    found["spark2"]["fabric_ports"] = []
    with pytest.raises(AnsibleFilterError, match="cabling_verdict of heard: fabric_ports of spark1"):
        cabling_verdict(found, spark(3), "heard")
