# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import time

import pytest

from lab.checkpoint_inventory import shard_name


def test_three_ranks_serve(group, model):
    three = group(3)
    head, *workers = three.start_all(model)
    assert three.ask("/health")[0] == 200
    status, models = three.ask("/v1/models")
    assert (status, models["data"][0]["id"], models["data"][0]["owned_by"]) == (200, "m", "gb10-lab-stand-in")
    assert "stand-in" in head.log().splitlines()[0]
    assert "NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>" in head.log()
    for rank in (head, *workers):
        assert rank.log().count("Engram DISK mode: layer") == 2
    answer(three)
    completion(three)
    bad_requests(three)
    begin = time.monotonic()
    for rank in (head, *workers):
        rank.process.terminate()
    assert head.wait() == 0
    assert time.monotonic() - begin < 2
    assert "stopped in order" in head.log()


def answer(three):
    body = {"model": "m", "messages": [{"role": "user", "content": "What is 17*19?"}], "logprobs": True}
    status, found = three.ask("/v1/chat/completions", body)
    assert (status, found["choices"][0]["message"]["content"]) == (200, "323")
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + found["usage"]["completion_tokens"]
    assert all(math.isfinite(entry["logprob"]) for entry in found["choices"][0]["logprobs"]["content"])


def completion(three):
    body = {"model": "m", "prompt": ["The ring", "The ring"], "max_tokens": 5, "logprobs": 1}
    status, found = three.ask("/v1/completions", body)
    assert status == 200
    first, second = found["choices"]
    assert first["text"] == second["text"]
    assert first["finish_reason"] == "length"
    assert "".join(first["logprobs"]["tokens"]) == first["text"]
    assert found["usage"]["completion_tokens"] == 10


def bad_requests(three):
    chat = "/v1/chat/completions"
    for path, body, status, says in (
        (chat, b"{", 400, "not JSON"),
        (chat, [], 400, "must be a JSON object"),
        (chat, {"messages": []}, 400, "at least one message"),
        (chat, {"messages": [{"role": "user", "content": 1}]}, 400, "content must be"),
        ("/v1/completions", {"prompt": "x", "stream": True}, 400, "streams chat completions only"),
        (chat, {"model": "other", "messages": []}, 404, "does not exist"),
        ("/v1/completions", {"prompt": 7}, 400, "prompt: expected"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ("/v1/nothing", {}, 404, "Not Found"),
    ):
        found = three.ask(path, body)
        assert found[0] == status
        assert says in found[1]["error"]["message"]


@pytest.mark.parametrize("victim", [0, 2])
def test_the_death_of_one_rank_ends_all(group, model, victim):
    ranks = group(3).start_all(model)
    ranks[victim].process.send_signal(signal.SIGKILL)
    begin = time.monotonic()
    for rank in ranks:
        if rank.rank != victim:
            assert rank.wait() == 1
            assert f"rank {victim} (127.0.0.1) closed the connection; the group is broken" in rank.log()
    assert time.monotonic() - begin < 2.5


def test_a_frozen_rank_counts_as_lost(group, model):
    head, worker = group(2).start_all(model)
    worker.process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    assert head.wait() == 1
    assert time.monotonic() - begin < 4
    assert "rank 1 (127.0.0.1) has been silent for" in head.log()
    worker.process.send_signal(signal.SIGKILL)


def test_a_rank_that_is_stopped_says_so(group, model):
    head, worker = group(2).start_all(model)
    worker.process.terminate()
    assert worker.wait() == 0
    assert head.wait() == 1
    assert "rank 1 was stopped; the group is broken" in head.log()


def test_workers_may_come_first_and_come_again(group, model):
    three = group(3)
    first = three.start(1, model)
    first.wait_for("is not there yet")
    head = three.start(0, model)
    first.wait_for("Engram")
    head.wait_for("rank 1 joined")
    first.process.send_signal(signal.SIGKILL)
    head.wait_for("before the start; waiting for it again")
    for rank in (three.start(1, model), three.start(2, model), head):
        rank.wait_for("Application startup complete.")


def test_another_model_is_refused_by_rank(group, model, copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config))  # the same values in other bytes
    two = group(2)
    head, worker = two.start(0, model), two.start(1, copy)
    assert worker.wait() == 1
    assert head.wait() == 1
    assert "rank 0 refused this rank: rank 1 (127.0.0.1) has another model" in worker.log()
    assert "rank 1 (127.0.0.1) has another model" in head.log()


def test_the_same_rank_twice(group, model):
    three = group(3)
    head, first = three.start(0, model), three.start(1, model)
    head.wait_for("rank 1 joined")
    second = three.start(1, model)
    assert second.wait() == 1
    assert "joined twice: two nodes have this rank" in second.log()
    assert head.wait() == 1
    assert first.wait() == 1


def test_a_head_alone_gives_up(group, model):
    head = group(3).start(0, model, environment={"VLLM_ENGINE_READY_TIMEOUT_S": "0.5"})
    assert head.wait() == 1
    assert "rank 1, 2 did not join at 127.0.0.1:" in head.log()
    assert "within 0.5 s" in head.log()


@pytest.mark.parametrize(
    ("rank", "says"),
    [
        (0, "cannot listen at 198.51.100.9:{port}: not an address of this machine (gave up after 0.5 s)"),
        (1, "could not reach rank 0 at 127.0.0.1:{port} within 0.5 s: Connection refused"),
    ],
)
def test_a_wrong_master_address_ends_at_the_timeout(group, model, rank, says):
    two = group(2)
    # The head only tries to listen there. The worker's wrong address stays on loopback: nothing may leave this machine.
    address = "198.51.100.9" if rank == 0 else "127.0.0.1"
    started = two.start(
        rank, model, arguments={"--master-addr": address}, environment={"VLLM_ENGINE_READY_TIMEOUT_S": "0.5"}
    )
    assert started.wait() == 1
    assert says.format(port=two.rendezvous) in started.log()


def fails(group, model, says, size=3, **changes):
    started = group(size).start(0, model, **changes)
    assert started.wait() == 1
    for text in [says] if isinstance(says, str) else says:
        assert text in started.log()


def test_missing_files_are_all_named(group, copy):
    (copy / shard_name(10)).unlink()
    (copy / shard_name(11)).unlink()
    fails(group, copy, f"missing {shard_name(10)}, {shard_name(11)} of the 48 shards")


@pytest.mark.parametrize(
    "name", ["config.json", "quantization_config.json", "tokenizer.json", "model.safetensors.index.json"]
)
def test_a_missing_small_file(group, copy, name):
    (copy / name).unlink()
    fails(group, copy, f"missing {name}")


def test_no_model(group, tmp_path):
    fails(group, tmp_path / "nothing", "is not a directory: no model there")


def test_a_truncated_shard(group, copy):
    path = copy / shard_name(20)
    path.write_bytes(path.read_bytes()[:-100])
    fails(group, copy, [f"{shard_name(20)}: ", "the file is incomplete"])


def test_three_ranks_on_64_heads(group, copy):
    config = json.loads((copy / "config.json").read_text())
    config["text_config"].update(num_attention_heads=64, o_groups=8)
    (copy / "config.json").write_text(json.dumps(config))
    fails(
        group,
        copy,
        [
            "num_attention_heads 64 is not divisible by tensor parallel size 3",
            "o_groups 8 is not divisible by tensor parallel size 3",
        ],
    )


def test_tables_of_another_checkpoint(group, copy):
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["engram_num_embeddings"][0] += 1
    (copy / "config.json").write_text(json.dumps(config))
    fails(group, copy, "its hash columns need")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arguments": {"--nnodes": 2}}, "--nnodes 2 does not fit --tensor-parallel-size 3"),
        ({"arguments": {"--node-rank": 3}, "flags": ["--headless"]}, "--node-rank 3 must be between 0 and 2"),
        ({"arguments": {"--distributed-executor-backend": "ray"}}, "need --distributed-executor-backend mp"),
        ({"arguments": {"--max-model-len": 2000000}}, "above max_position_embeddings 1048576"),
        ({"flags": ["--headless"]}, "--headless on rank 0"),
        ({"flags": ["--enable-auto-tool-choice"]}, "requires --tool-call-parser"),
        (
            {"environment": {"VLLM_HOST_IP": "198.51.100.9"}},
            "VLLM_HOST_IP=198.51.100.9 is not an address of this machine",
        ),
        (
            {"environment": {"VLLM_ENGINE_READY_TIMEOUT_S": "soon"}},
            "VLLM_ENGINE_READY_TIMEOUT_S=soon: expected seconds",
        ),
    ],
)
def test_flags_and_machine(group, model, changes, says):
    fails(group, model, says, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"flags": ["--nonsense-flag"]}, "unrecognized arguments: --nonsense-flag"),
        ({"arguments": {"--kv-cache-dtype": "nonsense"}}, "invalid choice: 'nonsense'"),
        ({"arguments": {"--speculative-config": "{"}}, "is not JSON"),
    ],
)
def test_unknown_flags_are_refused_as_by_argparse(group, model, changes, says):
    started = group(3).start(0, model, **changes)
    assert started.wait() == 2
    assert says in started.log()


def local_copy(model, directory, first, last):
    directory.mkdir()
    for number in (47, 48):
        shutil.copy(model / shard_name(number), directory)
    (directory / "engram-local.json").write_text(json.dumps({"layers": {"1": [first, last], "14": [0, 10**6]}}))
    return {"environment": {"DSV41_ENGRAM_DIR": str(directory), "VLLM_ENGINE_READY_TIMEOUT_S": "0.2"}}


def test_a_node_local_engram_copy_is_used(group, model, tmp_path):
    fails(group, model, f"read from node-local {tmp_path}/local", **local_copy(model, tmp_path / "local", 0, 10**6))


def test_an_engram_copy_that_does_not_cover_the_rank_is_not_used(group, model, tmp_path):
    fails(
        group,
        model,
        ["WARNING", "holds layer 1 rows [5, 6), this rank needs [0, ", f"reading {model}"],
        **local_copy(model, tmp_path / "local", 5, 6),
    )


def test_an_engram_copy_that_ends_early_stops_the_engine(group, model, tmp_path):
    changes = local_copy(model, tmp_path / "local", 0, 10**6)
    path = tmp_path / "local" / shard_name(47)
    path.write_bytes(path.read_bytes()[:2000])
    fails(group, model, "the file is incomplete", **changes)


def test_the_version_says_what_it_is(group, model):
    found = subprocess.run(
        [group(1).start(0, model).process.args[0], "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout == "0.32.0+gb10-lab-stand-in\n"
