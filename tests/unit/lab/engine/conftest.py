# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lab import checkpoint
from lab.checkpoint_content import Recipe
from lab.checkpoint_inventory import TRUE_SIZES

ROOT = Path(__file__).parents[4]
ENGINE = ROOT / "lab/engine/vllm"
# as `engine.standin` finds it on a node, where the vllm script sets the path
sys.path.append(str(ROOT / "plugins/module_utils/checkpoint"))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A tiny checkpoint with heads and groups that two and three ranks can share; not to be changed."""
    out = tmp_path_factory.mktemp("model") / "r1"
    checkpoint.generate(out, Recipe(scale=8 * (1 << 20) / sum(TRUE_SIZES)))
    config = json.loads((out / "config.json").read_text())
    config["text_config"].update(num_attention_heads=72, o_groups=18)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    return out


@pytest.fixture
def copy(model, tmp_path):
    """A copy of the model that a test may spoil."""
    shutil.copytree(model, tmp_path / "copy")
    return tmp_path / "copy"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """One process of the stand-in on loopback."""

    def __init__(self, log, rank, model, group, **changes):
        arguments = {
            "--served-model-name": "m",
            "--tensor-parallel-size": group.size,
            "--nnodes": group.size,
            "--node-rank": rank,
            "--master-addr": "127.0.0.1",
            "--master-port": group.rendezvous,
            "--distributed-executor-backend": "mp",
            "--host": "127.0.0.1",
            "--port": group.port,
            **changes.get("arguments", {}),
        }
        argv = [str(ENGINE), "serve", str(model), *(str(word) for pair in arguments.items() for word in pair)]
        environment = {
            "PATH": os.environ["PATH"],
            "VLLM_HOST_IP": "127.0.0.1",
            "NCCL_SOCKET_IFNAME": "lo",
            "VLLM_ENGINE_READY_TIMEOUT_S": "20",
            **changes.get("environment", {}),
        }
        self.rank, self.path = rank, log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [*argv, *(["--headless"] if rank else []), *changes.get("flags", [])],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def log(self):
        return self.path.read_text()

    def wait(self, timeout=15.0):
        return self.process.wait(timeout)

    def wait_for(self, text, timeout=15.0):
        deadline = time.monotonic() + timeout
        while text not in self.log():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"no {text!r} within {timeout} s in:\n{self.log()}"
            time.sleep(0.02)


class Group:
    """The ranks of one test; ended after it."""

    def __init__(self, directory, size):
        self.directory, self.size = directory, size
        self.port, self.rendezvous = free_port(), free_port()
        self.ranks = []

    def start(self, rank, model, **changes):
        started = Rank(self.directory / f"rank{rank}-{len(self.ranks)}.log", rank, model, self, **changes)
        self.ranks.append(started)
        return started

    def start_all(self, model):
        ranks = [self.start(rank, model) for rank in range(self.size)]
        for rank in ranks:
            rank.wait_for("Application startup complete.")
        return ranks

    def ask(self, path, body=None):
        """Status and JSON (or None) of a request to rank 0."""
        data = None if body is None else json.dumps(body).encode() if not isinstance(body, bytes) else body
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")


@pytest.fixture
def group(tmp_path):
    """Makes groups; kills what is left of them."""
    made = []

    def make(size):
        made.append(Group(tmp_path, size))
        return made[-1]

    yield make
    for one in made:
        for rank in one.ranks:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGKILL)
                rank.process.wait()
