# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model updates on the lab: states of the bucket, runs through a proxy that counts, and looks at what the nodes serve."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fault_proxy import FaultProxy
from site_run import CHECKOUT, INVENTORY, NODES, ctl, on, play

ENGRAM_SHARDS = ("model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors")
#: The largest file, of which the state "chunk" changes one chunk.
LARGE = ENGRAM_SHARDS[1]
CHUNK = 16 << 20
NAME = "DeepSeek-V4.1-Flash-EXL3-lab"
ROOT = f"/var/lib/gb10-ring/checkpoints/{NAME}"
PREFIX = f"bot-lab-21/{NAME}"
SERVER, PORT = "198.18.0.254", 8446
BASE = CHECKOUT / ".lab" / "checkpoint-1"
VARIANT = CHECKOUT / ".lab" / f"variant-{os.environ.get('LAB_INSTANCE', 'test')}"
HEAD = ("198.18.0.1", 8000)
ADDRESSES = {f"198.18.0.{number}": node for number, node in enumerate(NODES, start=1)}


def publish(kind: str) -> dict[str, Any]:
    """Bring the bucket to this variant; its manifest."""
    argv = ["lab/checkpoint_variants.py", "--base", str(BASE), "--out", str(VARIANT), "--kind", kind]
    subprocess.run([sys.executable, *argv], cwd=CHECKOUT, check=True, capture_output=True, timeout=600)
    ctl("s3", "upload", str(VARIANT), PREFIX)
    found: dict[str, Any] = json.loads((VARIANT / "checkpoint-manifest.json").read_text())
    return found


class States:
    """Manifests of the states that the bucket was in, by kind."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}

    def publish(self, kind: str) -> str:
        """The revision of this state of the bucket, which is brought there."""
        self.known[kind] = publish(kind)
        return self.revision(kind)

    def revision(self, kind: str) -> str:
        return str(self.known[kind]["revision"])

    def size(self, kind: str, name: str) -> int:
        return next(int(file["size"]) for file in self.known[kind]["files"] if file["path"] == name)

    def whole(self, kind: str) -> bool:
        """Whether all nodes have this state; asserts each file."""
        return all(whole(self.revision(kind), node, self.known[kind]) for node in NODES)


@dataclass
class Run:
    """One playbook run. moved: bytes that each node asked the store for, by file."""

    code: int
    output: str
    seconds: float
    moved: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(sum(files.values()) for files in self.moved.values())

    @property
    def by_file(self) -> Counter[str]:
        """Over all nodes."""
        return sum(self.moved.values(), Counter())

    @property
    def files(self) -> set[str]:
        return set(self.by_file)


def serve(revision: str, *extra: str) -> None:
    """Bring bare nodes to serving this revision, with as much of the site as that needs."""
    code, output = play("--skip-tags", "preflight,memory,verify", *extra)
    assert code == 0, output[-4000:]
    assert serve_all(revision)


def stop() -> None:
    """Stop the group, as its user does before rows that it reads change."""
    code, output = play("--tags", "engine", "-e", "engine_state=stopped")
    assert code == 0, output[-4000:]


def argv(playbook: str, *extra: str, **variables: object) -> list[str]:
    endpoint = {"checkpoint_endpoint_url": f"http://{SERVER}:{PORT}"}
    options = ["-e", json.dumps({**endpoint, **variables})]
    return ["ansible-playbook", f"playbooks/{playbook}", "-i", str(INVENTORY / "ring.yml"), *options, *extra]


def environment() -> dict[str, str]:
    return {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_TIMEOUT": "5"}


def restage(*extra: str, playbook: str = "restage.yml", **variables: object) -> Run:
    with FaultProxy(SERVER, PORT, f"{SERVER}:8333", lambda _asked: None) as proxy:
        began = time.monotonic()
        done = subprocess.run(
            argv(playbook, *extra, **variables),
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=environment(),
        )
        return Run(done.returncode, done.stdout + done.stderr, time.monotonic() - began, moved(proxy))


def moved(proxy: FaultProxy) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {node: Counter() for node in NODES}
    for one in proxy.seen:
        if one.node in ADDRESSES:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", one.range)
            assert asked, f"{one.node} asked for {one.file} without a range"
            found[ADDRESSES[one.node]][one.file] += int(asked[2]) - int(asked[1]) + 1
    return found


def descendants(pid: int) -> list[int]:
    """Processes below this one. Each is stopped before it is looked at, so that it starts none meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    said = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [one for child in map(int, said.split()) for one in (child, *descendants(child))]


class Controller:
    """A run that can be killed as a closed laptop kills it: all its processes at once, without a word to the nodes."""

    def __init__(self, *extra: str, playbook: str = "restage.yml", **variables: object) -> None:
        self.proxy = FaultProxy(SERVER, PORT, f"{SERVER}:8333", lambda _asked: None)
        self.words = argv(playbook, *extra, **variables)

    def __enter__(self) -> Controller:
        self.proxy.__enter__()
        self.process = subprocess.Popen(
            self.words,
            cwd=CHECKOUT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
        return self

    def kill(self) -> bool:
        """Whether it still ran. Its workers have sessions of their own and would end what they are at, so each is killed by itself."""
        if self.process.poll() is None:
            for pid in (self.process.pid, *descendants(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self.proxy.__exit__(None, None, None)


def everywhere(command: str) -> list[str]:
    """What a command prints on each node, in their order."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda node: on(node, command), NODES))


def wait_everywhere(condition: str) -> None:
    """Until a condition of the shell holds on every node; the call fails after some minutes."""
    everywhere(f"timeout 300 sh -c 'until {condition}; do sleep 0.05; done'")


def end_stagings() -> None:
    """Kill what a run without a controller has left running on the nodes, as a crash would."""
    held = f'for f in /proc/[0-9]*/fd/*; do [ "$(readlink $f)" = {ROOT}/staging/.lock ] && echo $f; done | cut -d/ -f3 | sort -u'
    everywhere(f"kill -9 $({held}) 2>/dev/null; true")


def active() -> list[str]:
    """The revision that current names, on each node."""
    return [text.rpartition("/")[2] for text in everywhere(f"readlink {ROOT}/current")]


def units() -> list[str]:
    """The revision that the engine's unit runs, on each node, from its process."""
    look = (
        "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value gb10-ring-engine.service)/cmdline | grep /revisions/"
    )
    return [text.rpartition("/")[2] for text in everywhere(f"{look} || true")]


def record(node: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(on(node, f"cat {ROOT}/switch.json"))
    return found


def named() -> dict[str, set[str]]:
    """By node, the revisions that its link and the record of its switch name. All of them have to be there whole."""
    found = {}
    for node, current in zip(NODES, active(), strict=True):
        said = record(node)
        found[node] = {current, *(str(said[role]) for role in ("active", "previous", "target"))} - {""}
    return found


def healthy() -> bool:
    connection = http.client.HTTPConnection(*HEAD, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def serve_all(revision: str) -> bool:
    """Whether all nodes serve this revision, as links, processes and the API say; asserts each."""
    assert active() == [revision] * 3
    assert units() == [revision] * 3
    assert healthy()
    return True


def whole(revision: str, node: str, manifest: dict[str, Any]) -> bool:
    """Whether every file of this manifest is there as published; config.json may be a derived one."""
    rows = on(node, f"cd {ROOT}/revisions/{revision} && sha256sum *").splitlines()
    found = {row.split()[1]: row.split()[0] for row in rows}
    wanted = {str(file["path"]): str(file["sha256"]) for file in manifest["files"]}
    found.pop("config.json"), wanted.pop("config.json")
    assert found == wanted
    return True


class Health:
    """Looks at the API all the time, as a client would. went: when it was found not to answer first, by the machine's clock."""

    def __init__(self) -> None:
        self.went = 0.0
        self.looks: list[tuple[float, bool]] = []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self.end.wait(0.05):
            answer = healthy()
            self.looks.append((time.monotonic(), answer))
            self.went = self.went or (0.0 if answer else time.time())

    def __enter__(self) -> Health:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end.set()
        self.thread.join()

    @property
    def downtime(self) -> float:
        """The longest time without a healthy answer between two of them."""
        good = [at for at, answer in self.looks if answer]
        return max((later - earlier for earlier, later in pairwise(good)), default=0.0)


#: Runs on a node.
SAMPLER = """
import os, pathlib, sys, time
pathlib.Path("/run/fullness.pid").write_text(str(os.getpid()))
while True:
    seen = os.statvfs(sys.argv[1])
    print(seen.f_blocks, seen.f_bavail, seen.f_frsize, flush=True)
    time.sleep(0.01)
"""


class Fullness:
    """Samples how full the data file system of a node is; peak: the most bytes that were not available."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.process = subprocess.Popen(
            ["lab/ctl", "exec", node, "--", "python3", "-c", SAMPLER, ROOT],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.peak, self.samples, self.size = 0, 0, 0
        self.thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        for line in self.process.stdout or ():
            blocks, available, unit = map(int, line.split())
            self.size, self.samples = blocks * unit, self.samples + 1
            self.peak = max(self.peak, (blocks - available) * unit)

    def __enter__(self) -> Fullness:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        on(self.node, "kill $(cat /run/fullness.pid); rm /run/fullness.pid")
        self.process.wait()
        self.thread.join()


def disk(node: str) -> tuple[int, int]:
    """Bytes in use as kubelet counts them, and the size of the data file system."""
    blocks, available, unit = map(int, on(node, f"stat -f -c '%b %a %S' {ROOT}").split())
    return (blocks - available) * unit, blocks * unit
