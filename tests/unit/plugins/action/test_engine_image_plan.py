# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.action import engine_image_plan

ID, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
DISK = {"size": 10**12, "available": 10**12}


def host(rank, **look):
    port = {"address": f"10.100.0.{rank + 1}", "netdev": "enp1s0f0np0", "subnet": "10.100.0.0/24"}
    return {"ring_rank": rank, "fabric_ports": [port], "engine_image_look": {"images": {}, "disk": DISK, **look}}


def plan(hostvars, **arguments):
    task = SimpleNamespace(
        args={"runtime": "docker", "image_id": ID, **arguments}, async_val=0, check_mode=False, diff=False
    )
    action = engine_image_plan.ActionModule(
        task, SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)), SimpleNamespace(), None, None, None
    )
    return action.run(task_vars={"hostvars": hostvars, "ansible_play_hosts_all": list(hostvars)})


HAS, LACKS = host(0, images={ID: 5}, unit_image=ID), host(1)


def test_each_node_is_told_what_to_do_and_the_token_is_never_displayed():
    one, other = (plan({"n0": HAS, "n1": LACKS}) for _time in range(2))
    assert one["nodes"]["n1"]["step"] == "take" and one["nodes"]["n1"]["sources"] == ["10.100.0.1"]
    assert one["nodes"]["n0"]["listen"] == [{"address": "10.100.0.1", "netdev": "enp1s0f0np0"}]
    assert (one["image_id"], one["moved"], one["waves"]) == (ID, True, 1)
    assert len(one["token"]) >= 32 and one["token"] != other["token"] and one["_ansible_no_log"] is True
    assert all(one["token"] not in node["move"] for node in one["nodes"].values())


def test_nothing_moves_where_all_have_it():
    result = plan({"n0": HAS, "n1": host(1, images={ID: 5})})
    assert (result["moved"], result["waves"], result["checks"]) == (False, 0, [])


def test_checks_of_all_nodes_or_of_one():
    hostvars = {"n0": HAS, "n1": host(1, images={ID: 5}, unit_image=OTHER), "n2": host(2)}
    arrived = plan(hostvars, phase="arrived")
    assert [(check["node"], check["ok"]) for check in arrived["checks"]] == [("n0", True), ("n1", True), ("n2", False)]
    (unit,) = plan(hostvars, phase="unit", node="n1")["checks"]
    assert (unit["id"], unit["node"], unit["ok"]) == ("engine.image", "n1", False)
    assert "token" not in arrived


@pytest.mark.parametrize(
    ("hostvars", "arguments", "said"),
    [
        ({"n0": {}}, {}, "n0: fabric_ports and ring_rank"),
        ({"n0": HAS}, {"ceiling_percent": 0}, "option ceiling_percent is 0"),
    ],
)
def test_what_stands_in_the_way_is_shown(hostvars, arguments, said):
    result = plan(hostvars, **arguments)
    assert result["failed"] and said in result["msg"] and not result.get("_ansible_no_log")
