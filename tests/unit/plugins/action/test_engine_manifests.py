# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gb10.ring.plugins.action.engine_manifests import ActionModule
from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS, RING3, S3

FILES = ["10-storage.yaml", "20-model.yaml", "30-jobs.yaml", "40-inferenceservice.yaml"]


def hostvars(**changes):
    hosts = host_variables(parse_topology({"plugin": "gb10.ring.topology", **RING3}))
    return {host: {**variables, **changes.get(host, {})} for host, variables in hosts.items()}


def run(tmp_path, variables=None, check=False, **options):
    profile = GROUPS["vllm-tp3-ring-exl3"].with_renderer("kubernetes").read()
    arguments = {
        "hosts": ["ahazidgx3", "ahazidgx1", "ahazidgx2"],
        "profile": profile,
        "directory": "manifests",
        "model_root": "/srv/m",
        "revision": "r1",
        **options,
    }
    task = SimpleNamespace(args=arguments, check_mode=check, async_val=0, diff=True)
    loader = DataLoader()
    loader.set_basedir(str(tmp_path))
    action = ActionModule(task, None, SimpleNamespace(), loader, None, None)
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return action.run(task_vars={"hostvars": variables or hostvars()})


def written(tmp_path):
    return sorted(path.name for path in (tmp_path / "manifests").glob("*"))


def read(tmp_path, name):
    return list(yaml.safe_load_all((tmp_path / "manifests" / name).read_text()))


def test_files_are_written_once_in_rank_order(tmp_path):
    planned = run(tmp_path, check=True)
    assert planned["changed"]
    assert written(tmp_path) == []
    result = run(tmp_path)
    assert result["diff"] == planned["diff"]
    assert written(tmp_path) == FILES
    assert result["paths"] == [str(tmp_path / "manifests" / name) for name in FILES]
    assert result["resources"] == [read(tmp_path, name) for name in FILES]
    (service,) = read(tmp_path, FILES[3])
    assert [member["node"] for member in service["spec"]["multiNode"]["members"]] == [
        "ahazidgx1",
        "ahazidgx2",
        "ahazidgx3",
    ]
    assert service["spec"]["multiNode"]["members"][0]["modelCache"] == {"claimName": "dsv41-ahazidgx1"}
    again = run(tmp_path)
    assert not again["changed"]
    assert again["diff"] == []


def test_names_in_the_cluster_are_host_variables(tmp_path):
    run(tmp_path, hostvars(ahazidgx2={"engine_kubernetes_node": "k8s-2", "engine_kubernetes_claim": "claim-2"}))
    (service,) = read(tmp_path, FILES[3])
    assert service["spec"]["multiNode"]["members"][1]["node"] == "k8s-2"
    assert service["spec"]["multiNode"]["members"][1]["modelCache"] == {"claimName": "claim-2"}
    assert read(tmp_path, FILES[0])[2]["metadata"]["name"] == "claim-2"


class Tagged(str):
    """As ansible-core 2.19 gives texts to an action."""


def test_texts_of_a_playbook_are_written(tmp_path):
    run(tmp_path, source=Tagged(S3), files=[Tagged("config.json")], namespace=Tagged("serve"), capacity=Tagged("1Ti"))
    (model,) = read(tmp_path, FILES[1])
    assert model["spec"]["source"] == S3
    assert model["metadata"]["namespace"] == "serve"


def test_staged_by_the_operator(tmp_path):
    run(tmp_path, source=S3, source_secret="store", files=["config.json"], namespace="serve")
    (model,) = read(tmp_path, FILES[1])
    assert model["spec"]["source"] == S3
    assert model["spec"]["files"] == ["config.json"]
    assert model["metadata"]["namespace"] == "serve"
    programs = next(found["data"] for found in read(tmp_path, FILES[0]) if found["kind"] == "ConfigMap")
    assert "def padded(" in programs["tp_config.py"]


def test_devices_that_the_nodes_have(tmp_path):
    hosts = hostvars()
    for variables in hosts.values():
        variables["engine_fabric_info"] = {
            "ports": [
                {"netdev": port["netdev"], "present": True, "rdma_device": f"mlx5_{index}", "rdma_state": "4: ACTIVE"}
                for index, port in enumerate(variables["fabric_ports"])
            ]
        }
    run(tmp_path, hosts)
    (service,) = read(tmp_path, FILES[3])
    assert service["spec"]["multiNode"]["members"][0]["fabric"]["ibHCA"] == "mlx5_0,mlx5_2,mlx5_1,mlx5_3"
    for variables in hosts.values():
        for port in variables["engine_fabric_info"]["ports"]:
            port["rdma_state"] = "1: DOWN"
    assert run(tmp_path, hosts)["changed"]  # as planned, where nothing is up yet


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"revision": ""},
            "revision is empty: name the one that is staged on the nodes (engine_revision), or a source",
        ),
        ({"profile": {"name": "x"}}, "executable is missing"),
        (
            {"profile": GROUPS["vllm-tp3-ring-exl3"].read()},
            "profile vllm-tp3-ring-exl3 has renderer docker, expected kubernetes",
        ),
        ({"hosts": ["ahazidgx1", "ahazidgx2"]}, "tensor_parallel is 3, the group has 2 nodes"),
    ],
)
def test_refusals(tmp_path, options, says):
    with pytest.raises(AnsibleActionFail) as error:
        run(tmp_path, **options)
    assert says in str(error.value)
    assert written(tmp_path) == []


def test_a_host_that_is_in_no_topology_file(tmp_path):
    hosts = hostvars()
    del hosts["ahazidgx2"]["management_interface"]
    with pytest.raises(
        AnsibleActionFail, match="ahazidgx2: no management_interface; list the node in the topology file"
    ):
        run(tmp_path, hosts)
