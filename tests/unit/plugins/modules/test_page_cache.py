from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.memory import cache
from ansible_collections.gb10.ring.plugins.modules import page_cache
from ansible_collections.gb10.ring.tests.unit.fixtures.platform_trees import GIB, LEFT, build, meminfo

FULL = meminfo(MemFree=GIB, MemAvailable=80 * GIB, Cached=118 * GIB)


@pytest.fixture
def tree(tmp_path):
    return build(tmp_path, {"proc/meminfo": FULL, "proc/sys/vm/drop_caches": "0\n"})


@pytest.fixture
def kernel(tree, monkeypatch):
    """A kernel that lets go of the cache when it is told to; the list holds what was done, in order."""
    done = []

    def run(argv, timeout):
        done.append(argv[0])

    real = cache.drop

    def drop(proc):
        real(proc)
        done.append("drop " + (tree / "proc/sys/vm/drop_caches").read_text().strip())
        (tree / "proc/meminfo").write_text(meminfo())

    monkeypatch.setattr(cache, "run", run)
    monkeypatch.setattr(cache, "drop", drop)
    monkeypatch.setattr(cache, "POLL_S", 0.01)
    return done


def call(tree, capsys, check=False, **options):
    arguments = {
        "node": "spark1",
        "proc_root": str(tree / "proc"),
        "timeout_s": 0.05,
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        page_cache.main()
    return json.loads(capsys.readouterr().out)


def test_dirty_pages_are_written_before_the_cache_is_dropped(tree, capsys, kernel):
    result = call(tree, capsys, weights_gib=79.47, activations_gib=7, graphs_gib=2, utilization=0.78)
    assert kernel == ["sync", "drop 3"]
    assert (result["changed"], result["dropped"]) == (True, True)
    assert result["before"]["Cached"] == 118 * 1024
    assert result["after"]["MemFree"] == 118 * 1024


def test_an_engine_that_lives_in_the_page_cache_keeps_it(tree, capsys, kernel):
    result = call(tree, capsys, drop=False, weights_gib=70)
    assert kernel == []
    assert (result["changed"], result["dropped"]) == (False, False)
    assert (tree / "proc/sys/vm/drop_caches").read_text() == "0\n"


def test_check_mode_drops_nothing_and_says_what_would_be_refused(tree, capsys, kernel):
    result = call(tree, capsys, check=True, utilization=0.78)
    assert kernel == []
    assert "MemAvailable is 80.0 GiB after 0 s" in result["refusal"]


def test_what_does_not_come_back_in_time_is_refused_with_its_holder(tree, capsys, kernel):
    build(tree, LEFT)
    result = call(tree, capsys, drop=False, utilization=0.9)
    assert result["failed"] is True
    assert result["msg"].startswith("spark1: no room for the engine, which was not started: MemAvailable is 80.0 GiB")
    assert "pid 4711 VLLM::EngineCore (3.0 GiB resident)" in result["msg"]


def test_memory_that_comes_back_is_waited_for(tree, capsys, kernel, monkeypatch):
    real, looks = cache.memory, []

    def memory(proc):
        looks.append(proc)
        if len(looks) == 4:
            (tree / "proc/meminfo").write_text(meminfo())
        return real(proc)

    monkeypatch.setattr(cache, "memory", memory)
    result = call(tree, capsys, drop=False, utilization=0.9, timeout_s=30)
    assert result["after"]["MemAvailable"] == 118 * 1024
    assert len(looks) == 4


def test_a_share_that_is_too_small_is_refused_before_anything_is_dropped(tree, capsys, kernel):
    result = call(tree, capsys, weights_gib=79.47, activations_gib=7, graphs_gib=2, utilization=0.72)
    assert "negative KV cache" in result["msg"]
    assert kernel == []


def test_options_that_cannot_be(tree, capsys, kernel):
    assert (
        "spark1: weights_gib is -1; 0 or more GiB are allowed; utilization is 78"
        in call(tree, capsys, weights_gib=-1, utilization=78)["msg"]
    )


def test_a_drop_that_the_kernel_refuses_is_an_error(tmp_path, capsys):
    tree = build(tmp_path, {"proc/meminfo": FULL})
    (tree / "proc/sys/vm/drop_caches").mkdir(parents=True)
    assert "drop_caches: Is a directory" in call(tree, capsys)["msg"]
