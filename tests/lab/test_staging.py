# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging on the lab with a proxy between nodes and S3 that injects faults, and what is left of a staging on the nodes.

Runs inside the controller namespace of a freshly booted lab (`make staging`, `make staging-full`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from secrets_look import DECOY, Looking, in_files, in_processes

import fault_proxy
from fault_proxy import Asked, Fault, FaultProxy
from site_run import CHECKOUT, NODES, on, play

ROOT = "/var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3-lab"
SERVER, PORT = "198.18.0.254", 8445
STAGE = ("--tags", "preflight,checkpoint")
#: config.json stays as it comes, and the proxy is the store that nodes and controller see.
OPTIONS = {
    "checkpoint_endpoint_url": f"http://{SERVER}:{PORT}",
    "checkpoint_tensor_parallel": 0,
    "checkpoint_part_mib": 8,
    "checkpoint_read_timeout_s": 3,
}
SOURCE = CHECKOUT / ".lab" / "checkpoint-1"


def shard(number: int) -> str:
    return f"model-{number:05}-of-00048.safetensors"


def proxy(faults=lambda _asked: None) -> FaultProxy:
    return FaultProxy(SERVER, PORT, f"{SERVER}:8333", faults)


def stage(*extra: str, **options) -> tuple[int, str]:
    return play(*STAGE, *extra, "-e", json.dumps({**OPTIONS, **options}))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def staged(node: str) -> dict[str, str]:
    rows = on(node, f"cd {ROOT}/current/ && find . -type f -exec md5sum {{}} +").splitlines()
    return {row.split("  ./")[1]: row.split()[0] for row in rows}


def forget() -> None:
    for node in NODES:
        on(node, f"rm -rf {ROOT}")


HURT: dict[str, list[Fault]] = {
    **{
        shard(number): [fault_proxy.answer(503, "SlowDown"), fault_proxy.answer(500, "InternalError")]
        for number in (1, 2, 3)
    },
    shard(6): [fault_proxy.reset],
    shard(7): [fault_proxy.truncate],
    shard(8): [fault_proxy.silence],
    shard(9): [fault_proxy.answer(403, "AccessDenied", "Request has expired")],
    "tokenizer.json": [fault_proxy.answer(503, "SlowDown")] * 3,
}


def faults_of_the_way(asked: Asked) -> Fault | None:
    faults = HURT.get(asked.file, [])
    return faults[asked.number] if asked.number < len(faults) else None


def test_what_happens_on_the_way_ends_in_the_same_checkpoint():
    forget()
    with proxy(faults_of_the_way) as between, Looking() as looking:
        between.whole = lambda asked: asked.file == shard(47) and asked.number == 0
        code, output = stage("-vvv", checkpoint_progress="on", checkpoint_rate_limit=40_000_000)
    assert code == 0, output[-3000:]
    for node in NODES:
        assert staged(node) == digests(SOURCE)
        assert re.search(rf"^{node}: \d+/54 files, .* of .*/s", output, flags=re.MULTILINE)
    assert "X-Amz-Signature" not in output
    # Of what was not hurt, no byte was asked for twice.
    asked = Counter((one.node, one.file, one.range) for one in between.seen if one.range)
    hurt = {(one.node, one.file) for one in between.hurt}
    assert len(hurt) == len(NODES) * (len(HURT) + 1)
    assert {key for key, count in asked.items() if count > 1 and key[:2] not in hurt} == set()
    # While it ran, no process showed an address or a key, and nobody without rights could read one.
    for node in NODES:
        during = [look for look in looking.looks[node] if look.running]
        assert during
        assert [look.processes for look in during] == [[]] * len(during)
        assert [look.everybodys for look in during] == [[DECOY]] * len(during)


def test_no_address_and_no_key_is_left_on_a_node():
    for node in NODES:
        assert (in_files(node), in_processes(node)) == ([], [])


def test_a_second_run_moves_nothing_and_is_quick(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "ansible.builtin.junit")
    monkeypatch.setenv("JUNIT_OUTPUT_DIR", str(tmp_path))
    # One node at a time: here they share the cores of one machine, which real nodes do not.
    with proxy() as between:
        code, output = stage("--forks", "1")
    assert code == 0, output[-3000:]
    assert [one for one in between.seen if one.node != SERVER] == []
    cases = [case for report in tmp_path.glob("*.xml") for case in ET.parse(report).iter("testcase")]
    ends = sorted(float(case.get("time")) for case in cases if "Stage the checkpoint" in case.get("name"))
    # Each is counted from the start of the task, so the first one's time is in that of the second.
    seconds = [round(end - before, 2) for end, before in zip(ends, [0.0, *ends], strict=False)]
    print(f"seconds of the staging task that finds everything in place, node by node: {seconds}")
    assert len(seconds) == len(NODES) and max(seconds) < 2


@pytest.mark.full
def test_a_flipped_bit_never_passes_and_costs_one_file():
    forget()
    victim = shard(21)
    with proxy(lambda asked: fault_proxy.flip if (asked.file, asked.node) == (victim, "198.18.0.2") else None):
        code, output = stage()
    assert code != 0
    assert re.search(rf"{re.escape(victim)}: expected (\w+):\w+, got \1:", output)
    assert "spark2: " in output
    assert on("spark2", f"test -e {ROOT}/revisions && ls {ROOT}/revisions || true") == ""
    with proxy() as between:
        code, output = stage()
    assert code == 0, output[-3000:]
    assert {(one.node, one.file) for one in between.seen if one.range} == {("198.18.0.2", victim)}
    assert [staged(node) for node in NODES] == [digests(SOURCE)] * len(NODES)


@pytest.mark.full
def test_a_disk_that_somebody_else_fills_meanwhile_is_told_and_the_next_run_goes_on():
    forget()
    filler = "/var/lib/gb10-ring/filler"
    filled = []

    def fill(asked: Asked) -> None:
        if asked.node == "198.18.0.2" and asked.file == shard(1) and not filled:
            filled.append(asked)
            on("spark2", f"fallocate -l $(df --output=avail -B1 /var/lib/gb10-ring | tail -1) {filler}")

    try:
        with proxy(fill):
            code, output = stage(checkpoint_workers=2)
    finally:
        on("spark2", f"rm -f {filler}")
    assert code != 0 and filled
    assert re.search(r"spark2: .*\.safetensors: cannot write .*No space left", " ".join(output.split()))
    assert "fetched so far are kept for the next run" in " ".join(output.split())
    with proxy() as between:
        code, output = stage()
    assert code == 0, output[-3000:]
    again = {(one.node, one.file) for one in between.seen if one.range}
    assert {node for node, _file in again} == {"198.18.0.2"}
    assert {file for _node, file in again} < set(digests(SOURCE)) and [staged(node) for node in NODES] == [
        digests(SOURCE)
    ] * 3


@pytest.fixture
def bucket():
    config = Config(s3={"addressing_style": "path"})
    store = boto3.Session(profile_name="admin").client("s3", endpoint_url=f"http://{SERVER}:8333", config=config)

    def put(name: str, body: bytes) -> None:
        key = f"bot-lab-21/DeepSeek-V4.1-Flash-EXL3-lab/{name}"
        store.put_object(Bucket="models", Key=key, Body=body, ChecksumAlgorithm="CRC64NVME")

    return put


@pytest.mark.full
def test_an_object_that_is_replaced_mid_way_is_never_mixed_and_all_nodes_end_alike(bucket):
    forget()
    victim, original = shard(48), (SOURCE / shard(48)).read_bytes()
    other = random.Random(7).randbytes(len(original))
    done = []

    def replace(asked: Asked) -> Fault | None:
        # spark1 has a part of the old object when the new one appears.
        if asked.file == victim and asked.node == "198.18.0.1" and asked.number == 2 and not done:
            done.append(asked)
            bucket(victim, other)
        return None

    try:
        with proxy(replace) as between:
            code, output = stage(checkpoint_workers=2)
        assert code == 0, output[-3000:]
        assert done
        for node in NODES:
            assert staged(node) == {**digests(SOURCE), victim: hashlib.md5(other).hexdigest()}
        # Nodes that had finished the old state link its files; config.json is never linked, as it may be derived from.
        again = Counter((one.node, one.file, one.range) for one in between.seen if one.range)
        assert {file for (_node, file, _range), count in again.items() if count > 1} <= {victim, "config.json"}
    finally:
        bucket(victim, original)
