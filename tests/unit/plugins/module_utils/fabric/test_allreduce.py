# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the all-reduce program is called, what it says, and what that comes to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import allreduce
from ansible_collections.gb10.ring.tests.unit.fixtures.allreduce_program import PROGRAM, load

MIB = 1 << 20
SETTINGS = allreduce.Settings("nccl", (MIB, 256 * MIB), 20, 0.2, 300)


def told(gbytes=23.2, wrong=0, **more):
    results = [
        {
            "bytes": size,
            "seconds": 0.01,
            "algorithm_gbytes_s": gbytes * 0.75,
            "bus_gbytes_s": gbytes,
            "wrong_items": wrong,
        }
        for size in SETTINGS.sizes
    ]
    base = {"rank": 0, "ranks": 3, "backend": "nccl", "torch": "2.11", "device": "NVIDIA GB10", "library": "2.30.7"}
    return {**base, "limit_bytes": 4 << 30, "left_out": [], "results": results, **more}


def judged(answer, shape="ring", settings=SETTINGS):
    return {check.id.removeprefix("fabric."): check for check in allreduce.checks("spark1", shape, 3, answer, settings)}


def test_all_is_well():
    found = judged(told())
    assert set(found) == {"allreduce", "allreduce_sum", "allreduce_bandwidth"}
    assert all(check.ok for check in found.values())
    assert found["allreduce"].found == "3 ranks over NCCL 2.30.7, NVIDIA GB10, torch 2.11"
    assert found["allreduce_bandwidth"].found == "23.20 GB/s bus bandwidth at 256 MiB"


@pytest.mark.parametrize("shape", ["ring", "pair", "switch"])
@pytest.mark.parametrize(
    ("gbytes", "ok", "severity"),
    [
        (18.0, True, "warning"),
        (17.9, False, "warning"),
        (11.3, False, "warning"),
        (9.9, False, "error"),
        (7.9, False, "error"),
    ],
)
def test_thresholds(shape, gbytes, ok, severity):
    check = judged(told(gbytes), shape)["allreduce_bandwidth"]
    assert (check.ok, check.severity) == (ok, severity)
    assert ("sockets)" in check.found) is (gbytes < 10)


def test_thresholds_of_the_user():
    settings = allreduce.Settings("gloo", (MIB,), 20, 0.2, 300, warn_below=0.2, fail_below=0.1)
    assert judged(told(0.25), settings=settings)["allreduce_bandwidth"].ok
    assert judged(told(0.15), settings=settings)["allreduce_bandwidth"].severity == "warning"
    assert judged(told(0.05), settings=settings)["allreduce_bandwidth"].severity == "error"


def at(size, gbytes, **more):
    """An answer whose largest size is this one."""
    return told(results=[{"bytes": size, "bus_gbytes_s": gbytes, "wrong_items": 0}], **more)


@pytest.mark.parametrize("shape", ["ring", "pair", "switch"])
@pytest.mark.parametrize(
    ("size", "gbytes", "severity"),
    [
        (MIB, 2.0, "info"),
        (16 * MIB, 12.0, "info"),
        (16 * MIB, 200.0, "info"),
        (255_999_996, 7.9, "info"),
        (256_000_000, 7.9, "error"),
        (256 * MIB, 7.9, "error"),
        (1024 * MIB, 11.3, "warning"),
    ],
)
def test_thresholds_of_256_mb_judge_no_smaller_size(shape, size, gbytes, severity):
    """Small sums are slower by nature: over NVLink 277.8, 168.7 and 26.0 GB/s at 256, 16 and 1 MiB."""
    check = judged(at(size, gbytes), shape)["allreduce_bandwidth"]
    assert (check.ok, check.severity) == (False, severity)
    assert ("not judged at this size" in check.found) is (severity == "info")
    assert "sockets)" not in check.found or severity == "error"
    assert check.cure


@pytest.mark.parametrize(
    ("warn", "fail", "gbytes", "ok", "severity"),
    [
        (5.0, 3.0, 6.0, True, "warning"),
        (5.0, 3.0, 4.0, False, "warning"),
        (5.0, 3.0, 2.0, False, "error"),
        (5.0, 0.0, 6.0, True, "warning"),  # one alone: the other is not 256 MB's
        (5.0, 0.0, 2.0, False, "warning"),
        (0.0, 3.0, 4.0, True, "warning"),
        (0.0, 3.0, 2.0, False, "error"),
    ],
)
def test_a_smaller_size_is_judged_by_the_users_thresholds(warn, fail, gbytes, ok, severity):
    settings = allreduce.Settings("nccl", (16 * MIB,), 20, 0.2, 300, warn_below=warn, fail_below=fail)
    check = judged(at(16 * MIB, gbytes), settings=settings)["allreduce_bandwidth"]
    assert (check.ok, check.severity) == (ok, severity)
    assert "sockets" not in check.found + check.expected, "what those reach at 256 MB says nothing here"


def test_the_users_thresholds_are_for_the_largest_size_that_he_asked_for():
    settings = allreduce.Settings("nccl", (16 * MIB, 256 * MIB), 20, 0.2, 300, warn_below=20, fail_below=12)
    found = judged(at(16 * MIB, 9.0, left_out=[256 * MIB]), settings=settings)
    assert found["allreduce_bandwidth"].severity == "info"
    assert found["allreduce_memory"].severity == "warning"
    assert (
        judged(at(256 * MIB, 9.0, left_out=[1024 * MIB]), settings=settings)["allreduce_bandwidth"].severity == "error"
    )


def test_a_wrong_sum_is_an_error_whatever_the_speed():
    check = judged(told(wrong=7))["allreduce_sum"]
    assert not check.ok
    assert check.severity == "error"
    assert check.found == "7 wrong of 1 MiB, 7 wrong of 256 MiB"


def test_what_did_not_run_is_one_check():
    found = judged({"error": "did not end within 5 s"})
    assert list(found) == ["allreduce"]
    assert found["allreduce"].found == "did not end within 5 s"
    assert judged(told(ranks=2))["allreduce"].found == "2 ranks took part"


def test_sizes_without_room_are_told():
    check = judged(told(left_out=[1 << 30]))["allreduce_memory"]
    assert check.found == "1024 MiB left out; the rank with the least free memory allows 4096 MiB for all buffers"
    assert check.severity == "warning"


@pytest.mark.parametrize(
    ("stdout", "stderr", "error"),
    [
        ('NCCL INFO x\n\ngb10-ring-allreduce: {"error": "no GPU"}\n', "", "no GPU"),
        ("", "docker: no such image\n", "exit 125 without a result: docker: no such image"),
        ("", "docker: no such image\n\nSee 'docker run --help'.\n", "exit 125 without a result: docker: no such image"),
        ("", "", "exit 125 without a result: no output"),
        ("gb10-ring-allreduce: {broken\n", "", "exit 125 without a result: gb10-ring-allreduce: {broken"),
        ("gb10-ring-allreduce: {}\n", "", "exit 125 without a result: gb10-ring-allreduce: {}"),
    ],
)
def test_what_the_program_says(stdout, stderr, error):
    assert allreduce.parse(stdout, stderr, 125)["error"] == error


def test_the_last_result_counts():
    line = f"{allreduce.MARK}{json.dumps(told())}"
    assert allreduce.parse(f"x\n{line}\n", "warning: x", 0)["ranks"] == 3


def test_the_call():
    place = allreduce.Place(1, 3, "192.168.1.11", 29555)
    argv = allreduce.argv(["docker", "run", "-i", "image"], SETTINGS, place, {"NCCL_NET": "IB"})
    assert argv[:5] == ["docker", "run", "-i", "image", "-"]
    assert argv[argv.index("--sizes") + 1] == "1048576,268435456"
    pairs = dict(word.split("=", 1) for word in argv if "=" in word)
    assert pairs == {
        "NCCL_NET": "IB",
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "192.168.1.11",
        "MASTER_PORT": "29555",
    }
    assert load().arguments(argv[5:]).env == [f"{name}={value}" for name, value in sorted(pairs.items())]


def test_the_environment():
    fabric = {"NCCL_NET": "IB", "GLOO_SOCKET_IFNAME": "enP7s7"}
    assert allreduce.environment(fabric, "gloo", {"X": "1"}) == {
        "GLOO_SOCKET_IFNAME": "enP7s7",
        "OMP_NUM_THREADS": "1",
        "X": "1",
    }
    nccl = allreduce.environment(fabric, "nccl", {"NCCL_NET": "Socket"})
    assert nccl["NCCL_NET"] == "Socket"
    assert nccl["NCCL_DEBUG_SUBSYS"] == "INIT,NET"


# --- The program, without torch


@pytest.mark.parametrize(("ranks", "expected"), [(2, 17.44), (3, 23.26), (8, 30.52)])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks, expected):
    assert round(load().bus_bandwidth(268435456, 0.01539, ranks), 2) == expected


def test_sizes_that_fit():
    program = load()
    assert program.chosen_sizes([5, MIB, 256 * MIB], 4 * MIB) == [4, MIB]
    assert program.chosen_sizes([MIB], 4 * MIB - 1) == []
    assert program.available_memory("MemTotal: 9 kB\nMemAvailable:    1024 kB\n") == MIB


@pytest.mark.parametrize(
    "argv",
    [
        ["--sizes", "1,x"],
        ["--sizes", "2"],
        ["--iterations", "31"],
        ["--iterations", "0"],
        ["--memory-share", "0"],
        ["--memory-share", "1.1"],
        ["--env", "NAME"],
        ["--backend", "mpi"],
    ],
)
def test_arguments_that_are_refused(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        load().arguments(argv)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_without_torch_it_says_so():
    done = subprocess.run(
        [sys.executable, "-I", "-", "--timeout", "60"],
        input=PROGRAM.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot import torch" in allreduce.parse(done.stdout, done.stderr, done.returncode)["error"]


@pytest.mark.parametrize(
    ("hang", "status"), [("time.sleep(60)", 3), ("__import__('ctypes').PyDLL(None).sleep(60)", -14)]
)
def test_it_ends_itself_whatever_hangs(hang, status):
    """Told by a thread while Python runs; by the kernel's alarm when a library keeps Python from running."""
    text = PROGRAM.read_text(encoding="utf-8").replace("GRACE = 5", "GRACE = 1")
    text = text.replace("    group = Group(given.backend, given.timeout)", f"    {hang}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-", "--timeout", "1"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == status
    assert time.monotonic() - began < 10
    error = allreduce.parse(done.stdout, done.stderr, done.returncode)["error"]
    assert error.startswith("did not end within 1 s" if status == 3 else "exit -14 without a result")


# --- The comparison of the sum, on lists in place of tensors: with torch itself it runs on the lab (tests/lab/test_acceptance.py)


class Values(list):
    """The calls of a tensor that the program makes; each changes the list itself where torch's does."""

    def remainder_(self, divisor):
        self[:] = [value % divisor for value in self]
        return self

    def mul_(self, factor):
        self[:] = [value * factor for value in self]
        return self

    def add_(self, shift):
        self[:] = [value + shift for value in self]
        return self

    def to(self, _kind):
        return Values(map(float, self))

    def __ne__(self, other):
        return Values(left != right for left, right in zip(self, other, strict=True))

    def sum(self):
        return types.SimpleNamespace(item=lambda: sum(self))


RANKS, ITEMS = 3, 1000


def others(rank):
    """What the other ranks put in, written down without the program."""
    return [sum(position % 251 + other for other in range(RANKS) if other != rank) * 1.0 for position in range(ITEMS)]


def wrong_of(rank, all_reduce):
    """Group.wrong_items of a rank whose all_reduce is this one."""
    program = load()
    group = program.Group.__new__(program.Group)
    group.rank, group.size, group.device = rank, RANKS, "cpu"
    group.torch = types.SimpleNamespace(
        arange=lambda items, **_kind: Values(range(items)), int32="int32", float32="float32"
    )
    group.dist = types.SimpleNamespace(all_reduce=all_reduce)
    return group.wrong_items(ITEMS)


def summed(buffer, theirs):
    buffer[:] = [mine + other for mine, other in zip(buffer, theirs, strict=True)]


def one_item(buffer, theirs):
    summed(buffer, theirs)
    buffer[700] += 1


def two_pieces_in_each_others_place(buffer, theirs):
    summed(buffer, theirs)
    buffer[:100], buffer[512:612] = buffer[512:612], buffer[:100]


def another_ranks_pattern(buffer, theirs):
    summed(buffer, [value + 1 for value in theirs])


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize(
    ("all_reduce", "wrong"),
    [
        (summed, 0),
        (one_item, 1),
        (two_pieces_in_each_others_place, 200),
        (another_ranks_pattern, ITEMS),
        (lambda _buffer, _theirs: None, ITEMS),
    ],
    ids=["right", "one item", "pieces moved", "another rank's pattern", "nobody summed"],
)
def test_wrong_items_are_counted(rank, all_reduce, wrong):
    assert wrong_of(rank, lambda buffer: all_reduce(buffer, others(rank))) == wrong


def test_sums_never_leave_float32():
    program = load()
    assert 8.0 ** (program.TIMED_AT_MOST + 3) < 3.4e38
    assert 8 * (program.PERIOD - 1) + 28 < 1 << 24
