# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the all-reduce runs and with which of the engine's settings, from its profile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import parse
from ansible_collections.gb10.ring.plugins.module_utils.fabric import allreduce, allreduce_engine

PROFILES = Path(__file__).resolve().parents[5] / "roles" / "engine" / "profiles"
DIGEST = "sha256:" + "ab" * 32
FABRIC = {"NCCL_NET": "IB", "NCCL_MAX_NCHANNELS": "4", "NCCL_SOCKET_IFNAME": "=enP7s7", "GLOO_SOCKET_IFNAME": "enP7s7"}


def profile(**changed):
    given = {
        "name": "mine",
        "renderer": "docker",
        "executable": "vllm",
        "served_model_name": "m",
        "tensor_parallel": "ring_size",
        "image": "registry.example/vllm:1",
        "image_id": DIGEST,
        "capabilities": ["IPC_LOCK"],
    }
    return parse({**given, **changed}, 3).to_dict()


def test_docker():
    assert " ".join(allreduce_engine.command(profile(), {})) == (
        "docker run --rm -i --pull never --log-driver none --network host --ipc host --ulimit memlock=-1:-1 "
        "--security-opt no-new-privileges --cap-drop ALL --gpus all "
        f'--cap-add IPC_LOCK --device /dev/infiniband --entrypoint sh {DIGEST} -c python3 "$@"; exit $? allreduce'
    )


def test_podman():
    assert " ".join(
        allreduce_engine.command(profile(renderer="podman", capabilities=["IPC_LOCK", "SYS_NICE"]), {})
    ) == (
        "podman run --rm -i --pull never --log-driver none --network host --ipc host --ulimit memlock=-1:-1 "
        "--security-opt no-new-privileges --cap-drop ALL --device nvidia.com/gpu=all "
        f'--cap-add IPC_LOCK --cap-add SYS_NICE --device /dev/infiniband --entrypoint sh {DIGEST} -c python3 "$@"; exit $? allreduce'
    )


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        (
            {"image_id": "", "image": f"r.example/vllm@{DIGEST}"},
            [f"r.example/vllm@{DIGEST}", "-c", 'python3 "$@"; exit $?', "allreduce"],
        ),
        (
            {"executable": "/opt/a b/vllm"},
            [
                *(DIGEST, "-c"),
                'python=\'/opt/a b/python3\'; test -x "$python" || python=python3; "$python" "$@"; exit $?',
                "allreduce",
            ],
        ),
    ],
)
def test_the_image_and_its_python(changed, end):
    assert allreduce_engine.command(profile(**changed), {})[-4:] == end


@pytest.mark.parametrize(
    ("image_id", "container", "runs"),
    [
        ("", {"image": "sha256:00", "reference": f"r.example/vllm@{DIGEST}"}, "sha256:00"),
        ("", {"image": "sha256:00", "reference": "r.example/vllm@sha256:11"}, f"r.example/vllm@{DIGEST}"),
        ("", None, f"r.example/vllm@{DIGEST}"),
        (DIGEST, {"image": "sha256:00", "reference": f"r.example/vllm@{DIGEST}"}, DIGEST),
    ],
)
def test_the_id_that_the_engine_role_found_is_run(image_id, container, runs):
    given = profile(image=f"r.example/vllm@{DIGEST}", image_id=image_id)
    assert allreduce_engine.command(given, {"container": container})[-4] == runs


@pytest.mark.parametrize("beside", [True, False])
def test_what_the_containers_shell_runs(tmp_path, monkeypatch, beside):
    """The interpreter beside the program, or the one on PATH; standard input, arguments and the exit status go through."""
    for folder in ("path", "engine's"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "python3"
        program.write_text(f'#!/bin/sh\necho "{folder}: $2 $(cat)"; exit 3\n')
        program.chmod(0o755)
    if not beside:
        (tmp_path / "engine's/python3").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    words = allreduce_engine.command(profile(executable=f"{tmp_path}/engine's/vllm"), {})
    argv = ["sh", *words[words.index(DIGEST) + 1 :], "-", "two words"]
    done = subprocess.run(argv, input="program", capture_output=True, text=True, timeout=20, check=False)
    where = "engine's" if beside else "path"
    assert (done.returncode, done.stdout) == (3, f"{where}: two words program\n")


def test_without_gpus_none_is_asked_for():
    words = allreduce_engine.command(profile(gpus="", devices=[]), {})
    assert "--gpus" not in words
    assert "--device" not in words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["python3"]),
        (profile(renderer="venv", executable="/opt/vllm/venv/bin/vllm"), ["/opt/vllm/venv/bin/python3"]),
        (profile(renderer="venv", executable="/opt/sglang/bin/python3", engine="sglang"), ["/opt/sglang/bin/python3"]),
    ],
)
def test_a_python_of_the_node(given, words):
    assert allreduce_engine.command(given, {}) == words


def test_pods_cannot_be_run_from_a_node():
    given = {**profile(), "renderer": "kubernetes"}
    with pytest.raises(allreduce_engine.NoCommandError, match="set fabric_allreduce_command"):
        allreduce_engine.command(given, {})


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yml")), ids=lambda path: path.stem)
def test_every_profile_of_the_role_has_a_command(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    size = values["tensor_parallel"] if isinstance(values["tensor_parallel"], int) else 3
    given = parse({**values, "image_id": DIGEST}, size).to_dict()
    assert allreduce_engine.command(given, {})[0] in ("docker", f"{Path(given['executable']).parent}/python3")
    assert set(allreduce_engine.settings(given, {})) >= {
        name for name in given["env"] if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG")
    }


def test_settings_of_the_profile():
    env = {
        "NCCL_PROTO": "^LL128",
        "NCCL_BUFFSIZE": 1048576,
        "NCCL_IB_HCA": "={rdma_devices}",
        "NCCL_X": "{unknown}",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "NCCL_SOCKET_IFNAME": "enp1s0f0np0",
        "NCCL_DEBUG": "WARN",
        "NCCL_DEBUG_FILE": "/tmp/log",
        "VLLM_NCCL_SO_PATH": "/lib/nccl",
        "HF_HOME": "{cache}",
    }
    assert allreduce_engine.settings(profile(env=env), {"rdma_devices": "a,b"}) == {
        "NCCL_BUFFSIZE": "1048576",
        "NCCL_IB_HCA": "=a,b",
        "NCCL_PROTO": "^LL128",
        "NCCL_X": "{unknown}",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    assert allreduce_engine.settings({}, {}) == {}


def test_which_setting_wins():
    """The user's over ours over the profile's over the fabric's; an empty one of the profile takes the fabric's away."""
    engine = {"NCCL_MAX_NCHANNELS": "8", "NCCL_NET": "", "NCCL_PROTO": "Simple"}
    assert allreduce.environment(FABRIC, "nccl", {"NCCL_PROTO": "LL"}, engine) == {
        "GLOO_SOCKET_IFNAME": "enP7s7",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_MAX_NCHANNELS": "8",
        "NCCL_PROTO": "LL",
        "NCCL_SOCKET_IFNAME": "=enP7s7",
    }
    assert "NCCL_PROTO" not in allreduce.environment(FABRIC, "gloo", {}, engine)
