# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import argparse
import base64
import struct
import zlib

import pytest

from lab.engine.standin import chat, effects, fabric, options, pictures
from lab.engine.standin.answers import answer, logprob, tokens

FOUR = ["rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("What is 17*19? Answer with the number only.", "323"),
        ("What is 2 + 40?", "42"),
        ("7 minus 9", "-2"),
        ("12 times 12 is?", "144"),
        ("Count from 1 to 5.", "1, 2, 3, 4, 5"),
        ("count to 3", "1, 2, 3"),
        ("Repeat exactly: zebra-7f3a", "zebra-7f3a"),
        ("Reply with this word: 'ok'", "ok"),
        ("The nonce: 8c11", "8c11"),
        ("Write the word abc ten times, please.", " ".join(["abc"] * 10)),
        ("x\nThe access code of abc is 4711.\ny\nWhat is the access code of abc? 1+1", "4711"),
        ("What is the access code of abc?", "I did not see it."),
    ],
)
def test_what_can_be_answered(prompt, expected):
    assert answer(prompt) == expected


def test_everything_else_is_fixed_by_the_prompt():
    assert answer("Tell me a story") == answer("Tell me a story")
    assert answer("Tell me a story") != answer("Tell me another story")


@pytest.mark.parametrize("text", ["one", " a  b\nc ", "1, 2, 3", ""])
def test_tokens_joined_give_the_text(text):
    assert "".join(tokens(text)) == text


def test_blocks_are_known_by_all_that_is_before_them():
    words = [f"w{number}" for number in range(40)]
    one, other = chat.blocks(" ".join(words)), chat.blocks(" ".join([*words[:20], "x", *words[21:]]))
    assert len(one) == 2
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert chat.blocks(" ".join(["x", *words]))[0] != one[0]


def test_a_stream_gives_the_text_and_its_end():
    told = chat.Told(["h", "m"], ["a", " b", " c", " d"], "stop", [])
    envelope = {"id": "i", "created": 1, "model": "m", "usage": {"completion_tokens": 4}}
    events = list(chat.events(told, envelope, wants_usage=True))
    assert events[-1] == "data: [DONE]\n\n"
    assert '"usage": {"completion_tokens": 4}' in events[-2]
    assert sum('"content": "a b c"' in event for event in events) == 1
    assert sum('"reasoning": "hm"' in event for event in events) == 1
    assert len(list(chat.events(told, envelope, wants_usage=False))) == len(events) - 1


@pytest.mark.parametrize(
    ("fault", "template", "asked", "thinks"),
    [
        ("", {}, {}, False),
        ("", {"thinking": True}, {}, True),
        ("", {"thinking": True}, {"thinking": False}, False),
        ("", {"thinking": False}, {"thinking": True}, True),
        ("thinks", {"thinking": False}, {}, True),
        ("thinks", {}, {"thinking": False}, False),
    ],
)
def test_it_thinks_by_request_by_its_flags_or_by_a_fault(tmp_path, monkeypatch, *, fault, template, asked, thinks):
    (tmp_path / "faults").write_text(fault)
    monkeypatch.setenv("GB10_LAB_ENGINE_FAULTS", str(tmp_path / "faults"))
    assert chat.thinks({"chat_template_kwargs": asked}, template) is thinks


def test_thinking_that_is_cut_leaves_no_answer():
    told = chat.tell("What is 17*19?", {}, 64, "", thinking=True)
    assert (len(told.thoughts), told.pieces, told.finish) == (64, [], "length")
    assert chat.message(told)["content"] is None
    whole = chat.message(chat.tell("What is 17*19?", {}, 4096, "", thinking=True))
    assert (whole["content"], whole["reasoning"].startswith("I look")) == ("323", True)


def test_logprobs_are_finite_and_negative():
    assert all(-1 <= logprob("x", position) < 0 for position in range(50))


def sysfs(root, states):
    for device, state in states.items():
        (root / "class/infiniband" / device / "ports/1").mkdir(parents=True)
        (root / "class/infiniband" / device / "ports/1/state").write_text(f"{state}\n")
    return root


def test_active_devices_in_nccls_order(tmp_path):
    root = sysfs(tmp_path, {**dict.fromkeys(reversed(FOUR), "4: ACTIVE"), "rocep2s0f0": "1: DOWN"})
    assert fabric.active_devices(root) == FOUR
    assert fabric.active_devices(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", FOUR),
        ("=rocep1s0f0,roceP2p1s0f0", ["rocep1s0f0", "roceP2p1s0f0"]),
        ("=rocep1s0f", []),
        ("rocep1s0f", ["rocep1s0f0", "rocep1s0f1"]),
        ("rocep1s0f0:1", ["rocep1s0f0"]),
        ("^rocep1s0f0", FOUR[1:]),
        ("^=rocep1", FOUR),
    ],
)
def test_hca_list(wanted, expected):
    assert fabric.chosen_devices(FOUR, wanted) == expected


@pytest.mark.parametrize(
    ("environment", "states", "line"),
    [
        (
            {"NCCL_IB_HCA": "=" + ",".join(FOUR), "NCCL_SOCKET_IFNAME": "=enP7s7"},
            dict.fromkeys(FOUR, "4: ACTIVE"),
            "NET/IB : Using [0]rocep1s0f0:1/RoCE [1]rocep1s0f1:1/RoCE [2]roceP2p1s0f0:1/RoCE [3]roceP2p1s0f1:1/RoCE [RO]; "
            "OOB enP7s7:192.0.2.11<0>",
        ),
        (
            {"NCCL_IB_HCA": "=rocep1s0f0,rocep1s0f1", "NCCL_SOCKET_IFNAME": "enP7s7"},
            {"rocep1s0f0": "1: DOWN", "rocep1s0f1": "4: ACTIVE"},
            "NET/IB : Using [0]rocep1s0f1:1/RoCE [RO]; OOB enP7s7:192.0.2.11<0>",
        ),
        (
            {"NCCL_IB_HCA": "=mlx5_0", "NCCL_SOCKET_IFNAME": "enP7s7"},
            dict.fromkeys(FOUR, "4: ACTIVE"),
            "NET/Socket : Using [0]enP7s7:192.0.2.11<0>",
        ),
        (
            {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "enP7s7"},
            dict.fromkeys(FOUR, "4: ACTIVE"),
            "NET/Socket : Using [0]enP7s7:192.0.2.11<0>",
        ),
        (
            {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "enP7s7"},
            dict.fromkeys(FOUR, "4: ACTIVE"),
            "NET/Socket : Using [0]enP7s7:192.0.2.11<0>",
        ),
        ({}, {}, "NET/Socket : Using [0]lo:192.0.2.11<0>"),
    ],
)
def test_transport_line(tmp_path, environment, states, line):
    assert fabric.transport_line(environment, sysfs(tmp_path, states), "192.0.2.11") == line


@pytest.mark.parametrize(
    ("rank", "config", "eager", "environment", "absent"),
    [
        (0, {"cudagraph_mode": "FULL"}, False, {"NCCL_DEBUG_SUBSYS": "INIT,NET"}, []),
        (1, {"cudagraph_mode": "FULL"}, False, {"NCCL_DEBUG_SUBSYS": "ALL"}, ["GPU KV cache size"]),
        (0, {"cudagraph_mode": "FULL"}, True, {"NCCL_DEBUG_SUBSYS": "NET"}, ["Graph capturing"]),
        (0, None, False, {"NCCL_DEBUG_SUBSYS": "INIT"}, ["Graph capturing", "Subnet-aware routing"]),
    ],
)
def test_the_start_tells_what_took_effect(rank, config, eager, environment, absent):
    chosen = argparse.Namespace(node_rank=rank, compilation_config=config, enforce_eager=eager)
    lines = "\n".join(effects.start_lines(chosen, {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", **environment}))
    told = ["Subnet-aware routing", "Model loading took", "Available KV cache", "GPU KV cache size", "Graph capturing"]
    assert [text for text in told if text not in lines] == sorted(absent, key=told.index)


@pytest.mark.parametrize(("speculative", "rows"), [(None, []), ({"method": "dspark"}, ["draft", "accepted"])])
def test_metrics_count_drafts(speculative, rows):
    text = effects.drafted("m", 100, speculative)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line.partition("{")[0] for line in lines] == [f"vllm:spec_decode_num_{row}_tokens_total" for row in rows]
    assert all(float(line.split()[-1]) >= 100 for line in lines)


COLOURS = {"red": b"\xd0\x10\x18", "green": b"\x10\xb0\x20", "blue": b"\x20\x30\xe0", "white": b"\xff\xff\xff"}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*order, height=3, depth=8, filtered=0, rows=None):
    """Stripes four pixels wide."""
    row = bytes([filtered]) + b"".join(COLOURS[name] * 4 for name in order)
    pixels = zlib.compress(row * (height if rows is None else rows))
    header = struct.pack(">IIBBBBB", 4 * len(order), height, depth, 2, 0, 0, 0)
    # pixels may come in several chunks
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", pixels[:9]),
            chunk(b"IDAT", pixels[9:]),
            chunk(b"IEND", b""),
        )
    )


def parts(*pictures_given):
    urls = [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in pictures_given]
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": "Which colours have the stripes?"}, *shown]


@pytest.mark.parametrize("order", [("red", "green", "blue"), ("blue", "white", "red", "green"), ("green",)])
def test_stripes_of_a_picture(order):
    assert pictures.stripes(png(*order)) == list(order)


def test_the_picture_is_answered_from_its_pixels(tmp_path, monkeypatch):
    monkeypatch.setenv("GB10_LAB_ENGINE_FAULTS", str(tmp_path / "faults"))
    asked = parts(png("blue", "red", "green"))
    assert answer(asked[0]["text"] + pictures.seen(asked, 1)) == "blue, red, green"
    (tmp_path / "faults").write_text("colour-blind")
    assert answer(asked[0]["text"] + pictures.seen(asked, 1)) == "blue, green, red"
    assert pictures.seen("a text", 0) == ""
    assert pictures.seen(asked[:1], 0) == ""


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (parts(png("red"), png("blue")), "At most 1 image"),
        (parts(b"GIF89a"), "no PNG"),
        (parts(png("red")[:-3]), "ends within a chunk"),
        (parts(png("red").replace(b"IDAT", b"IDAX", 1)), "chunk IDAX of the picture is damaged"),
        (parts(png("red", depth=16)), "8 bits a colour"),
        (parts(png("red", filtered=1)), "without a filter only"),
        (parts(png("red", height=9, rows=2)), "all of them"),
        (parts(b"\x89PNG\r\n\x1a\n"), "no header"),
        ([{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}], "given as data:image/png"),
        ([{"type": "image_url", "image_url": "data:image/png;base64,?"}], "not base64"),
    ],
)
def test_pictures_that_cannot_be_seen(asked, says):
    with pytest.raises(pictures.PictureError, match=says):
        pictures.seen(asked, 1)


@pytest.mark.parametrize(
    ("flags", "images"),
    [([], 999), (["--language-model-only"], 0), (["--limit-mm-per-prompt", '{"image": 4}'], 4)],
)
def test_how_many_pictures_the_flags_allow(flags, images):
    assert options.images(options.parse(["serve", "/model", *flags])) == images
