# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.fabric_legs import FilterModule
from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology

fabric_legs = FilterModule().filters()["fabric_legs"]
NODES = [{"name": name, "management_address": f"192.0.2.{i}"} for i, name in enumerate("ab", 1)]


def test_fabric_legs():
    hostvars = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": "ring", "nodes": NODES}))
    found = fabric_legs(hostvars, ["a", "b"])
    assert [leg["subnet"] for leg in found] == [f"10.100.{number}.0/24" for number in range(4)]
    assert [f"{end['node']}:{end['port']}" for end in found[2]["ends"]] == ["b:0", "a:1"]


def test_a_host_without_a_plan():
    with pytest.raises(AnsibleFilterError, match="fabric_legs: a: no fabric_mtu, fabric_ports"):
        fabric_legs({"a": {}}, ["a"])
