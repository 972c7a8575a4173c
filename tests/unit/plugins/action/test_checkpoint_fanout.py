# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gb10.ring.plugins.action import checkpoint_fanout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make

DIGEST = "crc64nvme:" + "0" * 16
PLAN = make("tiny", "", [File("a", 5, '"a"', DIGEST), File("b", 7, '"b"', DIGEST)]).to_dict()


def host(rank, lacking=("a", "b")):
    port = {"address": f"10.100.0.{rank + 1}", "netdev": "enp1s0f0np0", "subnet": "10.100.0.0/24"}
    return {"ring_rank": rank, "fabric_ports": [port], "checkpoint_budget": {"lacking": list(lacking)}}


def decide(hostvars, forks=10, **arguments):
    task = SimpleNamespace(args={"plan": PLAN, **arguments}, async_val=0, check_mode=False, diff=False)
    action = checkpoint_fanout.ActionModule(
        task, SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)), SimpleNamespace(), None, None, None
    )
    known = {"hostvars": hostvars, "ansible_play_hosts": list(hostvars), "ansible_forks": forks}
    return action.run(task_vars=known)


def test_each_node_is_told_where_to_listen_and_whom_to_ask():
    result = decide({"n0": host(0), "n1": host(1)}, patience_s=60)
    token, nodes = result["token"], result["nodes"]
    assert nodes["n0"]["peers"] == {"a": [{"url": f"http://10.100.0.2:7871/{token}/a", "patience_s": 60}]}
    assert nodes["n1"]["peers"] == {"b": [{"url": f"http://10.100.0.1:7871/{token}/b", "patience_s": 60}]}
    assert nodes["n0"]["listen"] == [{"address": "10.100.0.1", "netdev": "enp1s0f0np0"}]
    assert (nodes["n0"]["home_bytes"], nodes["n1"]["home_bytes"]) == (7, 5)


def test_the_token_is_long_new_each_time_and_never_displayed():
    one, other = (decide({"n0": host(0), "n1": host(1)}) for _time in range(2))
    assert len(one["token"]) >= 32 and one["token"] != other["token"]
    assert one["_ansible_no_log"] is True and one["token"] not in one["msg"]


def test_nodes_that_lack_nothing_have_no_server():
    nodes = decide({"n0": host(0, ()), "n1": host(1, ())})["nodes"]
    assert [node["listen"] or node["peers"] for node in nodes.values()] == [{}, {}]


@pytest.mark.parametrize(
    ("hostvars", "more", "said"),
    [
        ({"n0": host(0), "n1": {}}, {}, "n1: fabric_ports and ring_rank"),
        ({"n0": host(0), "n1": host(1)}, {"forks": 1}, "set forks to 2"),
        ({"n0": host(0)}, {"port": 80}, "option port is 80"),
        ({"n0": host(0)}, {"plan": {}}, "option plan"),
    ],
)
def test_what_stands_in_the_way_is_shown(hostvars, more, said):
    result = decide(hostvars, **more)
    assert result["failed"] and said in result["msg"] and not result.get("_ansible_no_log")
