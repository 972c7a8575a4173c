# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import Profile, ProfileError, parse

SMALLEST = {"name": "x", "executable": "/opt/x", "served_model_name": "m", "tensor_parallel": "ring_size"}


def test_the_smallest_profile_is_completed():
    assert parse(SMALLEST, 3) == Profile(
        name="x", executable="/opt/x", served_model_name="m", tensor_parallel=3, command=("serve",)
    )
    sglang = {**SMALLEST, "engine": "sglang", "shapes": ["pair"]}
    assert parse(sglang, 2).command == ("-m", "sglang.launch_server")


def test_a_completed_profile_is_a_profile():
    full = parse(
        {
            **SMALLEST,
            "args": ["--seed", 1, True],
            "options": {
                "seed": 1,
                "headless-not": None,
                "trust": True,
                "off": False,
                "names": ["a", "b"],
                "c": {"d": 1},
            },
            "env": {"A": 1, "B": None, "C": True},
            "limit_memlock": 8388608,
            "mounts": [{"source": "/a", "target": "/b"}],
            "log_lines": [{"text": "x", "want": "absent", "means": "y"}],
            "weights_gib": 70,
            "thinking": {"enable": {"a": 1, "b": None}, "disable": None, "default": True},
        },
        4,
    )
    assert full.args == ("--seed", "1", "true")
    assert full.options == {"seed": 1, "trust": True, "names": ["a", "b"], "c": {"d": 1}}
    assert full.env == {"A": "1", "B": "", "C": "1"}
    assert full.thinking == {"enable": {"a": 1}, "disable": {}, "default": True}
    assert parse(full.to_dict(), 4) == full
    assert parse(json.loads(json.dumps(full.to_dict())), 4).to_dict() == full.to_dict()


def test_texts_of_numbers_are_taken_as_the_command_line_gives_them():
    assert parse({**SMALLEST, "port": "8001"}, 3).port == 8001


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"agrs": []}, "unknown key agrs, did you mean args?"),
        ({"gpu": 1}, "unknown key gpu, did you mean gpus?"),
        ({"name": ""}, "name is '', expected a one-line text"),
        ({"executable": "vllm"}, "executable is 'vllm', expected an absolute path"),
        ({"tensor_parallel": 2}, "tensor_parallel is 2, the group has 3 nodes"),
        ({"tensor_parallel": 9}, "tensor_parallel is 9, expected ring_size or an integer from 2 to 8"),
        ({"port": 40000}, "port is 40000, expected an integer from 1024 to 32767"),
        ({"port": True}, "port is True"),
        ({"port": 29500}, "port and rendezvous_port are both 29500"),
        ({"args": "--seed 1"}, "args: expected a list of texts"),
        ({"args": ["--speculative-config", {"method": "dspark"}]}, "write a JSON value as one quoted text"),
        ({"args": ["--node-rank=1", "--headless"]}, "args: --node-rank=1, --headless is set for each node"),
        ({"env": ["A=1"]}, "env is ['A=1'], expected a mapping"),
        ({"env": {"1A": "x"}}, "1A is no name of a variable"),
        ({"env": {"VLLM_HOST_IP": "1.2.3.4"}}, "VLLM_HOST_IP is set for each node"),
        ({"env": {"HF_TOKEN": "x"}}, "HF_TOKEN looks like a secret"),
        ({"env": {"HF_TOKEN": ["x"]}}, "HF_TOKEN looks like a secret"),
        ({"options": {"api-key": "s3"}}, "options: api-key looks like a secret, and everybody on the node can read a"),
        ({"options": {"api-key": ["s3", "s4"]}}, "options: api-key looks like a secret"),
        ({"options": {"kv-transfer-config": {"extra": {"password": "s3"}}}}, "kv-transfer-config.extra.password looks"),
        ({"args": ["--api-key", "s3"]}, "args: --api-key looks like a secret"),
        ({"args": ["--seed", "1", "--api_key=s3"]}, "args: --api_key looks like a secret"),
        ({"args": ["--node_rank=1"]}, "args: --node_rank=1 is set for each node"),
        ({"host": "127.0.0.1"}, "host: 127.0.0.1 is the head's loopback, where no other node reaches the API"),
        ({"host": "127.9.9.9"}, "host: 127.9.9.9 is the head's loopback"),
        ({"host": "::1"}, "host: ::1 is the head's loopback"),
        ({"host": "LocalHost"}, "host: LocalHost is the head's loopback"),
        ({"host": "api.localhost."}, "host: api.localhost. is the head's loopback"),
        ({"host": "127.1"}, "host is '127.1', expected the address that the API listens at on the head"),
        ({"host": "192.0.2.11:8000"}, "host is '192.0.2.11:8000', expected the address"),
        ({"host": "http://spark1"}, "host is 'http://spark1', expected the address"),
        ({"env": {"A": [1]}}, "A is [1], expected a text, a number, or null"),
        ({"env": {"A": "x\ny"}}, "A is 'x\\ny'"),
        ({"limit_memlock": "lots"}, "limit_memlock is 'lots', expected infinity or bytes"),
        ({"oom_score_adjust": -1001}, "oom_score_adjust is -1001"),
        ({"ready_timeout_s": 0}, "ready_timeout_s is 0"),
        ({"xyzzy": 1}, "unknown key xyzzy; known: activations_gib, args,"),
        ({"thinking": {"on": {}}}, "thinking: unknown key on; known: default, disable, enable"),
        ({"thinking": {"enable": [1]}}, "thinking: enable is [1], expected a mapping of chat_template_kwargs"),
        ({"thinking": {"default": "yes"}}, "thinking: default is 'yes', expected true or false"),
        ({"engine": "ollama"}, "engine is 'ollama', expected one of vllm, sglang"),
        ({"renderer": "compose"}, "renderer is 'compose', expected one of venv, docker, podman, kubernetes"),
        ({"shapes": []}, "shapes is [], expected a list of ring, pair, switch"),
        ({"options": ["seed"]}, "options is ['seed'], expected a mapping of flags"),
        ({"options": {"--seed": 1}}, "'--seed' is no name of a flag (without dashes)"),
        ({"options": {"node-rank": 1}}, "options: node-rank is set for each node"),
        ({"options": {"seed": [{}]}}, "seed is [{}], expected true, a text, a number"),
        ({"image": "Not an image"}, "image is 'Not an image', expected an image as NAME@sha256:DIGEST"),
        ({"image_id": "sha256:12"}, "image_id is 'sha256:12', expected the id of an image"),
        (
            {"mounts": [{"source": "a"}]},
            "mounts: source is 'a', expected an absolute path on the node; target is missing",
        ),
        (
            {"mounts": [{"source": "/a", "target": "/b", "ro": True}]},
            "mounts: unknown key ro; known: read_only, source",
        ),
        ({"log_lines": ["x"]}, "log_lines is ['x'], expected a list of {text, want, ranks, means, required}"),
        ({"weights_gib": -1}, "weights_gib is -1, expected GiB, a number from 0 to 1024"),
        ({"gid_variables": ["1"]}, "gid_variables is ['1'], expected a list of variable names"),
        ({"kubernetes": {"service": "x"}}, "kubernetes: model is missing: name of the Model; claim_prefix is missing"),
        ({"pins": ["x"]}, "pins is ['x'], expected a mapping of Python distributions"),
    ],
)
def test_refusals_name_key_value_and_what_is_allowed(change, says):
    with pytest.raises(ProfileError) as error:
        parse({**SMALLEST, **change}, 3, "profile p.yml")
    assert says in str(error.value)
    assert str(error.value).startswith("profile p.yml: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.11", "2001:db8::1", "spark1", "spark1.example.org", "h-1."])
def test_addresses_that_other_nodes_reach(host):
    assert parse({**SMALLEST, "host": host}, 3).host == host


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"api-key": "s3cret"}},
        {"options": {"api-key": {"a": object()}}},
        {"options": {"hf-token": [["s3cret"]]}},
        {"args": ["--api-key=s3cret"]},
        {"env": {"API_KEY": ["s3cret"]}},
    ],
)
def test_a_secret_that_is_refused_is_not_shown(change):
    with pytest.raises(ProfileError) as error:
        parse({**SMALLEST, **change}, 3)
    assert "looks like a secret" in str(error.value)
    assert "s3cret" not in str(error.value)


def test_all_problems_are_told_at_once():
    with pytest.raises(ProfileError) as error:
        parse({"nam": "x", "port": "high"}, 3)
    assert len(str(error.value).splitlines()) == 6


@pytest.mark.parametrize("values", [None, [], "text"])
def test_no_mapping(values):
    with pytest.raises(ProfileError, match="expected a mapping"):
        parse(values, 3)
