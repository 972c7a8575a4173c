# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import parse
from ansible_collections.gb10.ring.plugins.module_utils.engine.spec import ModelPlace, Node, SpecError, api_url, build
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PROFILE = parse(
    {
        "name": "x",
        "executable": "/opt/vllm/bin/vllm",
        "served_model_name": "m",
        "tensor_parallel": "ring_size",
        "args": ["--compilation-config", '{"mode": 3}', "--draft", "{model}/draft"],
        "env": {"CUDA_EXL3_MODEL_PATH": "{model}", "NCCL_IB_TC": 0, "NCCL_NET_PLUGIN": None},
    },
    3,
)
NODE = Node(0, 3, "ring", PORTS, "enP7s7", "192.0.2.11", "192.0.2.11")
MODEL = ModelPlace("/srv/m", "rev1", "digest")


def test_the_head():
    argv = build(PROFILE, NODE, MODEL).argv
    assert argv == (
        *(
            "/opt/vllm/bin/vllm",
            "serve",
            "/srv/m/revisions/rev1",
            "--served-model-name",
            "m",
            "--tensor-parallel-size",
            "3",
        ),
        *("--nnodes", "3", "--node-rank", "0", "--master-addr", "192.0.2.11", "--master-port", "29500"),
        *("--distributed-executor-backend", "mp", "--host", "0.0.0.0", "--port", "8000"),
        *("--compilation-config", '{"mode": 3}', "--draft", "/srv/m/revisions/rev1/draft"),
    )


def test_a_worker_is_headless_and_has_its_own_address():
    spec = build(PROFILE, replace(NODE, rank=2, management_address="192.0.2.13"), MODEL)
    assert "--headless" in spec.argv
    assert spec.argv[spec.argv.index("--node-rank") + 1] == "2"
    assert spec.argv[spec.argv.index("--master-addr") + 1] == "192.0.2.11"
    assert spec.env["VLLM_HOST_IP"] == "192.0.2.13"


def test_the_environment():
    env = build(PROFILE, NODE, MODEL).env
    assert env["CUDA_EXL3_MODEL_PATH"] == "/srv/m/revisions/rev1"
    assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert env["NCCL_IB_TC"] == "0"  # the profile has the last word
    assert "NCCL_NET_PLUGIN" not in env  # null unsets
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["HOME"] == "/var/cache/gb10-ring-engine"
    assert env["VLLM_ENGINE_READY_TIMEOUT_S"] == "900"


def test_the_record_says_what_the_unit_runs():
    spec = build(PROFILE, NODE, MODEL)
    record = json.loads(spec.record)
    assert record["hash"] == spec.hash
    assert record["argv"] == list(spec.argv)
    assert record["env"] == dict(spec.env)
    assert record["model"]["path"] == "/srv/m/revisions/rev1"
    assert record["url"] == "http://192.0.2.11:8000"


@pytest.mark.parametrize("text", ["/current", "current/"])
def test_the_link_is_nowhere_in_the_unit(text):
    assert text not in build(PROFILE, NODE, MODEL).unit


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://192.0.2.11:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("spark1.example.org", "http://spark1.example.org:8000"),
    ],
)
def test_api_url(host, url):
    assert api_url(replace(PROFILE, host=host), replace(NODE, rank=1)) == url


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 3}, "ring_rank is 3, expected 0 to 2"),
        ({"shape": "star"}, "ring_shape is 'star'"),
        ({"fabric_ports": []}, "at least one port"),
    ],
)
def test_refusals(change, says):
    with pytest.raises(SpecError) as error:
        build(PROFILE, replace(NODE, **change), MODEL)
    assert says in str(error.value)
