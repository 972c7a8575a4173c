# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.traces import (
    Holder,
    Segment,
    Traces,
    after_stop,
    caches,
    gpu_users,
    half_built,
    leftover,
    listening,
    memory_note,
    stale,
    taken,
)
from ansible_collections.gb10.ring.plugins.module_utils.memory.holders import GIB_KIB, Process

UNIT = "gb10-ring-engine.service"
OURS, THEIRS = f"0::/system.slice/{UNIT}", "0::/user.slice/session-1.scope"
CONTAINER = "0::/system.slice/docker-0123456789ab.scope"
POD = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-0123456789ab.scope"
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000
   1: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000
   2: 0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000
"""


def test_who_listens():
    assert listening(TABLE) == {"4711": 8000, "4712": 29500}
    assert listening("") == {}


def held(lost_gib=0.0):
    total = 120 * GIB_KIB
    return {"MemTotal": total, "MemFree": int(total - lost_gib * GIB_KIB)}


@pytest.mark.parametrize(
    ("found", "problems"),
    [
        (Traces(), []),
        (Traces(processes=(Process(7, "VLLM::Worker", GIB_KIB, THEIRS),), memory=held(7.9)), []),
        (Traces(processes=(Process(7, "VLLM::Worker", GIB_KIB, OURS),)), ["pid 7 VLLM::Worker (1.0 GiB resident) of"]),
        (Traces(containers=("gb10-ring-engine",)), ["container gb10-ring-engine is still there"]),
        (Traces(ports={8000: Holder(9, "python3")}), ["port 8000 is held by pid 9 python3"]),
        (Traces(memory=held(41)), ["33.0 GiB of memory have not come back"]),
        (Traces(memory=held(41), baseline_kib=20 * GIB_KIB), ["13.0 GiB of memory"]),
        (Traces(memory=held(41), baseline_kib=40 * GIB_KIB), []),
    ],
)
def test_what_a_stop_leaves(found, problems):
    texts = after_stop(found, UNIT)
    assert len(texts) == len(problems)
    assert all(text.startswith(begin) and "Cure: " in text for text, begin in zip(texts, problems, strict=True))


def test_memory_that_is_lost_asks_for_a_reboot():
    assert after_stop(Traces(memory=held(41)), UNIT)[0].endswith("the driver keeps them. Cure: reboot the node")


OLLAMA = Holder(77, "ollama", THEIRS)


@pytest.mark.parametrize(
    ("found", "stopped", "problems", "note"),
    [
        (Traces(memory=held(41)), True, 1, ""),
        (Traces(memory=held(41), gpu=()), True, 1, ""),
        (Traces(memory=held(41), gpu_problem="exit 9"), True, 1, ""),
        (Traces(memory=held(41), gpu=(Holder(7, "VLLM::Worker", OURS),)), True, 1, ""),
        (
            Traces(memory=held(41), gpu=(OLLAMA,)),
            True,
            0,
            "33.0 GiB of memory are held by no process, and pid 77 ollama",
        ),
        (Traces(memory=held(7), gpu=(OLLAMA,)), True, 0, ""),
        (Traces(memory=held(41), gpu=(OLLAMA,), ports={8000: OLLAMA}), True, 1, "33.0 GiB"),
        # nothing ran here: the node is somebody else's
        (Traces(memory=held(41), ports={8000: OLLAMA}), False, 0, ""),
        (Traces(processes=(Process(7, "VLLM::Worker", 0, OURS),), containers=("x",)), False, 2, ""),
    ],
)
def test_others_on_the_gpu_are_named_and_no_reboot_is_asked_for(found, stopped, problems, note):
    assert len(after_stop(found, UNIT, stopped)) == problems
    assert memory_note(found, UNIT).startswith(note)
    assert bool(memory_note(found, UNIT)) is bool(note)


@pytest.mark.parametrize(
    ("own", "cgroup", "ours"),
    [
        (("0123456789abcdef",), "0::/system.slice/docker-0123456789abcdef.scope", True),
        (("0123456789abcdef",), "0::/docker/0123456789abcdef", True),
        (("0123456789abcdef",), "0::/system.slice/docker-ffff56789abcdef0.scope", False),
        ((), CONTAINER, False),  # the rank runs in no container
        ((), f"{OURS}/libpod-payload-0123", True),
        (None, CONTAINER, True),  # nobody can tell
    ],
)
def test_another_container_beside_a_serving_rank_is_told(own, cgroup, ours):
    holder = Holder(9, "python3", cgroup)
    found = Traces((Process(9, "vllm serve", 0, cgroup),), (), {8000: holder}, (holder,), own_containers=own)
    assert [bool(look(found, UNIT, True)) for look in (stale, taken, gpu_users)] == [not ours] * 3


@pytest.mark.parametrize(
    ("active", "engines"),
    [
        (True, ["pid 8 vllm serve", "pid 10 VLLM::Pod"]),
        (False, ["pid 8 vllm serve", "pid 9 python3", "pid 10 VLLM::Pod", "container x"]),
    ],
)
def test_engines_that_are_not_ours(active, engines):
    processes = (
        Process(7, "VLLM::Worker", 0, OURS),
        Process(8, "vllm serve", 0, THEIRS),
        Process(9, "python3", 0, CONTAINER),
        Process(10, "VLLM::Pod", 0, POD),
    )
    texts = stale(Traces(processes=processes, containers=("x",)), UNIT, active)
    assert [text.partition(" (")[0] for text in texts] == engines


@pytest.mark.parametrize("look", [taken, gpu_users])
@pytest.mark.parametrize(
    ("cgroup", "active", "free"),
    [
        (OURS, True, True),
        (OURS, False, False),
        (CONTAINER, True, True),
        (CONTAINER, False, False),
        (THEIRS, True, False),
        (POD, True, False),  # the unit runs no pod
    ],
)
def test_ports_and_gpu_are_the_engines_or_nobodys(look, cgroup, active, free):
    holder = Holder(9, "python3", cgroup)
    found = look(Traces(ports={8000: holder}, gpu=(holder,)), UNIT, active)
    assert bool(found) is not free
    assert all("pid 9 python3" in text for text in found)


@pytest.mark.parametrize(
    ("segment", "gone"),
    [
        (Segment("psm_1a2b", 9, 0, 100.0), True),
        (Segment("nccl-Xy12", 9, 0, 101.0), True),
        (Segment("sem.mp-1", 9, 0, 101.0), True),
        (Segment("psm_held", 9, 0, 101.0), False),
        (Segment("psm_older", 9, 0, 99.0), False),
        (Segment("psm_theirs", 9, 1000, 101.0), False),
        (Segment("postgres.1", 9, 0, 101.0), False),
    ],
)
def test_shared_memory_goes_when_it_is_ours_and_nobody_maps_it(segment, gone):
    assert bool(leftover([segment], {"psm_held"}, 0, 100.0)) is gone
    assert leftover([segment], (), 0, 0.0) == []  # the rank has not run since boot


def test_compiled_kernels_of_all_nodes():
    one, two = "f/cached_ops/a/a.so", "f/cached_ops/b/b.so"
    assert caches({"x": [one, two], "y": [one], "z": []}) == {"y": [two], "z": [one, two]}
    assert caches({"x": [], "y": []}) == {}


def test_builds_that_were_cut_short():
    assert half_built(["a/x.o", "b/x.cuda.o", "b/b.so", "c/c.so"]) == ["a"]
