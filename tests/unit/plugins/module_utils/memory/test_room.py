from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import holders, room
from ansible_collections.gb10.ring.plugins.module_utils.memory.holders import Process
from ansible_collections.gb10.ring.plugins.module_utils.memory.room import Need
from ansible_collections.gb10.ring.tests.unit.fixtures.platform_trees import GIB, TOTAL, meminfo

# The published ring of three: 79.47 GiB of weights, about 7 of activations, 2 of graphs (LLMKube).
RING = Need(79.47, 7, 2, 0.78)
PINNED = Need(79.47, 7, 2, 0)


def memory(**changed):
    return holders.fields(meminfo(**changed))


@pytest.mark.parametrize(
    ("need", "available_gib", "fits"),
    [
        (RING, 117, True),
        (RING, 94.9, False),  # 0.78 x 121.7 = 94.9
        (RING, 95, True),
        (PINNED, 88, False),
        (PINNED, 89, True),
        (Need(), 0, True),
    ],
)
def test_when_an_engine_fits(need, available_gib, fits):
    assert room.fits(need, memory(MemAvailable=int(available_gib * GIB))) is fits


@pytest.mark.parametrize(("utilization", "hopeless"), [(0.72, True), (0.73, False), (0.78, False), (0, False)])
def test_a_share_that_does_not_hold_the_weights_is_told_at_once(utilization, hopeless):
    """0.72 ended with 'Available KV cache memory: -1.29 GiB' (LLMKube)."""
    said = room.too_small(Need(79.47, 7, 2, utilization), memory())
    assert bool(said) is hopeless
    if hopeless:
        assert "0.72 x 121.7 GiB = 87.6 GiB, and it needs 79.47 weights + 7 activations + 2 graphs = 88.5 GiB" in said


@pytest.mark.parametrize(
    ("changed", "processes", "words"),
    [
        (
            {"MemFree": 28 * GIB, "MemAvailable": 28 * GIB},
            [Process(4711, "VLLM::EngineCore", 3 * GIB)],
            [
                "MemAvailable is 28.0 GiB after 5 s",
                "asks for 94.9 GiB (0.78 x 121.7 GiB = 94.9 GiB): 66.9 GiB too few",
                "91.0 GiB no process (allocated by the GPU driver)",
                "pid 4711 VLLM::EngineCore",
                "Stop the engine named above",
            ],
        ),
        (
            {"MemFree": 85 * GIB, "MemAvailable": 85 * GIB},
            [],
            ["34.0 GiB no process", "Restart the node"],
        ),
        (
            {
                "MemFree": 80 * GIB,
                "MemAvailable": 82 * GIB,
                "Shmem": 30 * GIB,
                "Cached": 32 * GIB,
                "AnonPages": 5 * GIB,
            },
            [],
            ["30.0 GiB shared memory (Shmem)", "5.0 GiB anonymous memory", "2.1 GiB page cache", "Stop what holds it"],
        ),
        (
            {"MemFree": 90 * GIB, "MemAvailable": 90 * GIB, "AnonPages": 29 * GIB, "CmaTotal": 0, "CmaFree": 9_765_000},
            [],
            ["9.3 GiB kexec handover (CmaFree above CmaTotal)"],
        ),
    ],
)
def test_a_refusal_has_the_arithmetic_and_names_who_holds_the_memory(changed, processes, words):
    said = room.refusal(RING, memory(**changed), processes, 5)
    assert [word for word in words if word not in said] == []


def test_a_pinned_cache_is_compared_with_the_sum():
    said = room.refusal(PINNED, memory(MemAvailable=80 * GIB), [], 0)
    assert "asks for 88.5 GiB (79.47 weights + 7 activations + 2 graphs = 88.5 GiB): 8.5 GiB too few" in said


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (Need(-1), ["weights_gib is -1"]),
        (Need(0, -2, -3, 78), ["activations_gib is -2", "graphs_gib is -3", "utilization is 78"]),
        (RING, []),
    ],
)
def test_needs_that_cannot_be(need, said):
    found = room.option_problems(need)
    assert [text.startswith(start) for text, start in zip(found, said, strict=True)] == [True] * len(said)


def test_a_healthy_machine_has_nothing_large_to_name():
    assert [word.split()[0] for word in holders.words(memory(), [])] == ["1.3", "1.0"]
    assert holders.unaccounted(memory()) < 2 * GIB
    assert memory()["MemTotal"] == TOTAL
