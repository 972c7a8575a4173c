# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import ranges
from ansible_collections.gb10.ring.plugins.module_utils.engine.environment import filled, filled_value
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import parse
from ansible_collections.gb10.ring.plugins.module_utils.engine.spec import ModelPlace, Node, SpecError, api_url, build
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import CONFIG, GROUPS
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

PROFILE = parse(
    {
        "name": "x",
        "executable": "/opt/vllm/bin/vllm",
        "served_model_name": "m",
        "tensor_parallel": "ring_size",
        "options": {"compilation-config": {"mode": 3}, "draft": "{model}/draft", "list": ["{rank}", "{unknown}"]},
        "args": ["--last", "{model_root}"],
        "env": {
            "CUDA_EXL3_MODEL_PATH": "{model}",
            "NCCL_IB_TC": 0,
            "NCCL_NET_PLUGIN": None,
            "IF": "{rendezvous_interface}",
        },
        "log_lines": [
            {"text": "a", "means": "every rank"},
            {"text": "b", "want": "absent", "ranks": "head", "means": "the head"},
        ],
        "weights_gib": 70,
        "graphs_gib": 2,
    },
    3,
)
NODE = Node(0, 3, "ring", PORTS, "enP7s7", "192.0.2.11", "192.0.2.11")
MODEL = ModelPlace("/srv/m", "rev1", "digest")
DEVICES = {
    "rocep1s0f0": "10.100.0.1",
    "rocep1s0f1": "10.100.4.1",
    "roceP2p1s0f0": "10.100.1.1",
    "roceP2p1s0f1": "10.100.5.1",
}


def test_the_head():
    argv = build(PROFILE, NODE, MODEL).argv
    assert argv == (
        *("/opt/vllm/bin/vllm", "serve", "/srv/m/revisions/rev1", "--served-model-name", "m"),
        *("--tensor-parallel-size", "3", "--nnodes", "3", "--node-rank", "0"),
        *("--master-addr", "192.0.2.11", "--master-port", "29500"),
        *("--distributed-executor-backend", "mp", "--host", "0.0.0.0", "--port", "8000"),
        *("--compilation-config", '{"mode":3}', "--draft", "/srv/m/revisions/rev1/draft"),
        *("--list", "0", "{unknown}", "--last", "/srv/m"),
    )


def test_a_worker_is_headless_and_has_its_own_address():
    spec = build(PROFILE, replace(NODE, rank=2, management_address="192.0.2.13"), MODEL)
    assert "--headless" in spec.argv
    assert spec.argv[spec.argv.index("--node-rank") + 1] == "2"
    assert spec.argv[spec.argv.index("--master-addr") + 1] == "192.0.2.11"
    assert spec.env["VLLM_HOST_IP"] == "192.0.2.13"
    assert spec.rendezvous == {"interface": "enP7s7", "address": "192.0.2.13", "head": "192.0.2.11"}


def test_the_environment():
    env = build(PROFILE, NODE, MODEL).env
    assert env["CUDA_EXL3_MODEL_PATH"] == "/srv/m/revisions/rev1"
    assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert env["NCCL_IB_TC"] == "0"  # the profile has the last word
    assert "NCCL_NET_PLUGIN" not in env  # null unsets
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["HOME"] == "/var/cache/gb10-ring-engine"
    assert env["VLLM_ENGINE_READY_TIMEOUT_S"] == "900"
    assert env["IF"] == "enP7s7"


def test_what_is_found_on_the_node_decides_the_devices():
    found = [
        {"netdev": port["netdev"], "present": True, "rdma_device": f"mlx5_{index}", "rdma_state": "4: ACTIVE"}
        for index, port in enumerate(PORTS)
    ]
    found[1]["rdma_state"] = "1: DOWN"
    spec = build(PROFILE, replace(NODE, found=found), MODEL)
    assert spec.env["NCCL_IB_HCA"] == "=mlx5_0,mlx5_2,mlx5_3"
    assert spec.gid_devices == {"mlx5_0": "10.100.0.1", "mlx5_2": "10.100.4.1", "mlx5_3": "10.100.5.1"}


def test_the_specification_is_plain_data_and_cannot_be_changed():
    spec = build(PROFILE, NODE, MODEL)
    plain = json.loads(json.dumps(spec.to_dict()))
    assert plain == spec.to_dict()
    assert plain["argv"] == list(spec.argv)
    assert plain["gid_devices"] == DEVICES
    assert plain["model"] == {
        "root": "/srv/m",
        "revision": "rev1",
        "path": "/srv/m/revisions/rev1",
        "engine_path": "/srv/m/revisions/rev1",
        "config_sha256": "digest",
    }
    assert plain["ports"] == {"api": 8000, "rendezvous": 29500}
    assert plain["container"] is None
    assert plain["limits"]["memlock"] == "infinity"
    with pytest.raises(FrozenInstanceError):
        spec.rank = 1


@pytest.mark.parametrize(
    ("rank", "position", "lines"), [(0, 2, ["a", "b", "Application startup complete"]), (1, 1, ["a"]), (2, 0, ["a"])]
)
def test_start_order_and_what_a_healthy_rank_shows(rank, position, lines):
    spec = build(PROFILE, replace(NODE, rank=rank), MODEL)
    assert spec.readiness.start_position == position  # the highest rank first, the head last
    assert spec.readiness.line == "Application startup complete"
    assert [line["text"] for line in spec.expected.log_lines] == lines
    assert spec.expected.log_lines[0]["want"] == "present"
    assert spec.expected.memory == {
        "weights_gib": 70,
        "activations_gib": 0,
        "graphs_gib": 2,
        "utilization": 0,
        "page_cache": "drop",
    }
    silent = build(replace(PROFILE, ready_line=""), replace(NODE, rank=rank), MODEL)
    assert [line["text"] for line in silent.expected.log_lines] == [text for text in lines if len(text) == 1]


def test_a_line_that_is_required_is_said_to_be():
    lines = ({"text": "a", "means": "x", "required": True}, {"text": "b", "means": "y", "required": False})
    found = build(replace(PROFILE, log_lines=lines), NODE, MODEL).expected.log_lines
    assert [line.get("required") for line in found[:2]] == [True, None]


@pytest.mark.parametrize(
    ("debug", "present"),
    [
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}, 2),
        ({"NCCL_DEBUG": "INFO"}, 1),
        ({"NCCL_DEBUG": "WARN"}, 0),
        ({}, 0),
    ],
)
def test_a_line_of_nccl_is_waited_for_only_where_nccl_is_told_to_print_it(debug, present):
    """One that must not be there is always looked for."""
    texts = [
        ("NET/IB : Using", "present"),
        ("Subnet-aware routing: overriding dev", "present"),
        ("NET/Socket : Using", "absent"),
    ]
    lines = tuple({"text": text, "want": want, "means": "x"} for text, want in texts)
    spec = build(replace(PROFILE, log_lines=lines, env={**PROFILE.env, **debug}), replace(NODE, rank=1), MODEL)
    kept = [*(text for text, _want in texts[:2][:present]), "NET/Socket : Using"]
    assert [line["text"] for line in spec.expected.log_lines] == kept


def test_a_container_sees_the_checkpoint_and_the_cache_at_its_own_paths():
    _profile, specs = GROUPS["vllm-tp3-ring-docker"].specs()
    spec = specs[1]
    assert spec.model["engine_path"] == "/models/revisions/0123456789abcdef"
    assert spec.argv[2] == spec.model["engine_path"]
    assert spec.env["CUDA_EXL3_MODEL_PATH"] == spec.model["engine_path"]
    assert spec.env["VLLM_CACHE_ROOT"] == "/cache/vllm"
    assert "HOME" not in spec.env
    mounts = {mount.target: (mount.source, mount.read_only) for mount in spec.container.mounts}
    assert mounts == {"/models": (spec.model["root"], True), "/cache": ("/var/tmp/dsv41-vllm-cache", False)}
    assert spec.container.image == "sha256:" + "1" * 64
    assert spec.container.reference == "vllm-dsv41:exl3a"


@pytest.mark.parametrize("name", sorted(set(GROUPS) - {"lab", "lab-vllm-cpu"}))
def test_compiled_kernels_are_where_the_nodes_are_compared(name):
    """FlashInfer puts them below .cache/flashinfer of its base, of the home directory without one; a container's root is at home in /root."""
    group = GROUPS[name]
    profile, (spec, *_others) = group.specs()
    base = spec.env.get("FLASHINFER_WORKSPACE_BASE") or spec.env.get("HOME") or "/root"
    cache = profile.cache_mount if spec.container else profile.cache_directory
    kept = f"{base}/.cache/flashinfer".startswith(f"{cache}/")
    assert kept is (spec.kernels_from == "cache")
    assert (spec.kernels_from == "image") is (name == "vllm-tp3-ring-exl3")


def test_a_program_of_the_node_has_no_kernels_of_an_image():
    executable = {"executable": "/opt/vllm/bin/vllm"}
    ring = GROUPS["vllm-tp3-ring-exl3"]
    _profile, specs = replace(ring, overrides={**executable, "renderer": "venv"}).specs()
    assert {spec.kernels_from for spec in specs} == {"cache"}


def test_sglang_ranks_differ_in_rank_address_and_rows():
    _profile, specs = GROUPS["sglang-tp4-engram"].specs()
    assert [spec.argv[spec.argv.index("--node-rank") + 1] for spec in specs] == ["0", "1", "2", "3"]
    assert {spec.argv[spec.argv.index("--dist-init-addr") + 1] for spec in specs} == {"10.100.0.1:20100"}
    assert [spec.env["HOST_IP"] for spec in specs] == ["10.100.0.1", "10.100.0.2", "10.100.0.3", "10.100.0.4"]
    tables = ranges(CONFIG, 4, "sglang")
    for spec, rows in zip(specs, tables, strict=True):
        wanted = ",".join(f"{layer}:{low}:{high}" for layer, (low, high) in rows.items())
        assert spec.env["SPARK_ENGRAM_ROWS"] == wanted
    assert all("B12X_ROCE_GID_INDEX" not in spec.env for spec in specs)
    assert all("--headless" not in spec.argv for spec in specs)


def test_rows_of_a_checkpoint_that_is_not_staged_yet():
    group = replace(GROUPS["sglang-tp4-engram"], config=None)
    assert group.specs()[1][0].env["SPARK_ENGRAM_ROWS"] == "NOT-STAGED"


def test_a_pair_meets_over_its_cable():
    _profile, (head, worker) = GROUPS["vllm-tp2-pair-vision"].specs()
    assert head.rendezvous == {"interface": "enp1s0f0np0", "address": "10.10.4.1", "head": "10.10.4.1"}
    assert worker.rendezvous == {"interface": "enp1s0f1np1", "address": "10.10.4.2", "head": "10.10.4.1"}
    assert worker.env["NCCL_SOCKET_IFNAME"] == "=enp1s0f1np1"
    assert worker.url == "http://192.0.2.13:8080"  # the API stays on the management plane


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_no_rank_of_any_profile_has_a_pinned_gid_or_a_path_through_the_link(name):
    _profile, specs = GROUPS[name].specs()
    for spec in specs:
        assert not [variable for variable in spec.env if variable.endswith("GID_INDEX")]
        assert "/current" not in json.dumps(spec.to_dict())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{model}/x", "/m/x"),
        ('{"a": {"model": 1}}', '{"a": {"model": 1}}'),
        ("{model}{model}{other}", "/m/m{other}"),
        ("plain", "plain"),
    ],
)
def test_filled(text, expected):
    assert filled(text, {"model": "/m", "rank": "0"}) == expected


def test_filled_within_mappings_and_lists():
    value = {"a": ["{model}", 1, True], "b": {"c": "{rank}"}}
    assert filled_value(value, {"model": "/m", "rank": "0"}) == {"a": ["/m", 1, True], "b": {"c": "0"}}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://192.0.2.11:8000"),
        ("::", "http://192.0.2.11:8000"),
        ("192.0.2.99", "http://192.0.2.99:8000"),
        ("2001:db8::1", "http://[2001:db8::1]:8000"),
        ("spark1.example.org", "http://spark1.example.org:8000"),
    ],
)
def test_api_url(host, url):
    assert api_url(replace(PROFILE, host=host), replace(NODE, rank=1)) == url


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 3}, "ring_rank is 3, expected 0 to 2"),
        ({"shape": "star"}, "ring_shape is star"),
        ({"fabric_ports": []}, "at least one port"),
        ({"found": []}, "no RDMA device of the fabric is ACTIVE"),
    ],
)
def test_refusals(change, says):
    with pytest.raises(SpecError) as error:
        build(PROFILE, replace(NODE, **change), MODEL)
    assert says in str(error.value)


@pytest.mark.parametrize("change", [{"head_fabric_ports": ()}, {"shape": "ring"}, {"fabric_ports": [PORTS[1]]}])
def test_a_rendezvous_over_the_fabric_needs_addresses_there(change):
    profile = replace(PROFILE, rendezvous="fabric")
    node = replace(NODE, **{"shape": "pair", "head_fabric_ports": PORTS, **change})
    with pytest.raises(SpecError, match="Cure: rendezvous: management"):
        build(profile, node, MODEL)


def test_everything_that_does_not_fit_is_told_at_once():
    with pytest.raises(SpecError) as error:
        build(PROFILE, replace(NODE, rank=7, shape="star"), replace(MODEL, config=CONFIG))
    assert len(str(error.value).splitlines()) == 4


def test_an_engram_table_that_cannot_be_split_names_the_file():
    group = replace(GROUPS["sglang-tp4-engram"], config={"text_config": {}})
    with pytest.raises(SpecError, match=r"/revisions/0123456789abcdef/config.json: "):
        group.specs()
