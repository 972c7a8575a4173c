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


def test_hosts_left_out_of_the_run_are_no_contradiction():
    """verify.yml --limit spark2: the inventory knows the others, and they did not probe."""
    found = hostvars(World(spark(3), list(ring(spark(3)))), list(ring(spark(3))))
    for name in ("spark1", "spark3"):
        del found[name]["heard"]
    for port in found["spark2"]["heard"]["ports"]:
        port["heard"] = []
    verdict = cabling_verdict(found, ["spark2"], "heard", node="spark2", ring=spark(3))
    (check,) = verdict["checks"]
    assert (check["ok"], check["severity"]) == (False, "info")
    assert "spark1, spark3" in check["found"]


def test_a_result_of_an_earlier_play_on_a_host_outside_of_the_run_does_not_count():
    found = hostvars(World(spark(3), list(ring(spark(3)))), list(ring(spark(3))))
    checks = cabling_verdict(found, ["spark2"], "heard", ring=spark(3))["checks"]
    assert {check["node"] for check in checks} == {"spark2"}


@pytest.mark.parametrize(
    ("hosts", "changed", "said"),
    [
        (["spark2"], {"spark3": None}, "names spark3, which is not in the inventory"),
        (["spark1", "spark2"], {"spark2": []}, "of spark2, which that node's fabric_ports does not have"),
        (["spark2"], {"spark3": []}, "of spark3, which that node's fabric_ports does not have"),
    ],
    ids=["a node that nobody knows", "no entry of a node of the run", "no entry of a node outside"],
)
def test_a_plan_that_is_wrong_stays_an_error_in_a_limited_run(hosts, changed, said):
    found = hostvars(World(spark(3), list(ring(spark(3)))), list(ring(spark(3))))
    for name, ports in changed.items():
        if ports is None:
            del found[name]
        else:
            found[name]["fabric_ports"] = ports
    with pytest.raises(AnsibleFilterError, match=said):
        cabling_verdict(found, hosts, "heard", ring=list(found))
