from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.fleet_parity import FilterModule

fleet_parity = FilterModule().filters()["fleet_parity"]
HOSTVARS = {
    name: {"looked": {"facts": {"platform": {"kernel": kernel, "thp": "madvise"}}}}
    for name, kernel in {"spark1": "6.17", "spark2": "7.0", "spark3": "6.17"}.items()
} | {"spark4": {"looked": {"checks": [], "facts": {}}}, "spark5": {}}


def bad(*arguments):
    return [(check["id"], check["node"]) for check in fleet_parity(*arguments) if not check["ok"]]


def test_the_odd_node_is_named_and_nodes_without_an_answer_are_left_out():
    hosts = [*HOSTVARS, "unknown"]
    assert bad(HOSTVARS, hosts, "looked") == [("parity.kernel", "spark2")]
    assert bad(HOSTVARS, ["spark1", "spark3"], "looked") == []
    assert fleet_parity(HOSTVARS, hosts, "other") == []


def test_only_what_is_asked_for_is_compared():
    assert [check["id"] for check in fleet_parity(HOSTVARS, list(HOSTVARS), "looked", ["thp"])] == ["parity.thp"]
    assert fleet_parity(HOSTVARS, list(HOSTVARS), "looked", []) == []


def test_an_unknown_property_is_an_error():
    with pytest.raises(AnsibleFilterError, match="fleet_parity: unknown property colour"):
        fleet_parity(HOSTVARS, list(HOSTVARS), "looked", ["colour"])
