# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model updates on the lab where each node holds the Engram rows of its own rank: only what changed of these rows moves.

Runs inside the controller namespace of a freshly booted lab (`make restage-full`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import json

import pytest
from test_engram import SHARD, counts, sound

from engram_reader import tile
from restage_run import BASE, CHUNK, LARGE, ROOT, VARIANT, active, everywhere, publish, restage, serve, serve_all, stop
from site_run import NODES, on, play

DIRECTORY = {"checkpoint_engram_rule": "vllm", "checkpoint_engram_placement": "directory"}


def unit_refuses() -> None:
    """The unit of three ranks, which a boot of the node would start, beside rows of four."""
    unit = "gb10-ring-engine.service"
    assert on(
        "spark2", f"systemctl is-enabled {unit}; systemctl start {unit} 2>/dev/null; systemctl is-active {unit}; true"
    ).split() == [
        "enabled",
        "failed",
    ]
    said = on("spark2", f"journalctl -u {unit} -n 20 -o cat")
    assert f"engine-rows: {ROOT}/revisions/" in said and "which are not those of its rank" in said, said
    assert "restage.yml" in said


@pytest.fixture(scope="module", autouse=True)
def old() -> str:
    """The revision of the first state, served from slices by all nodes."""
    revision = str(publish("same")["revision"])
    serve(revision, "-e", json.dumps(SHARD))
    return revision


def test_a_changed_chunk_costs_nodes_with_rows_in_it_that_chunk(old):
    """It has rows of ranks 1 and 2; rank 0 gets a link to the slice that it has."""
    new = str(publish("chunk")["revision"])
    run = restage(**SHARD)
    assert run.code == 0, run.output[-4000:]
    assert run.moved == {"spark1": {}, "spark2": {LARGE: CHUNK}, "spark3": {LARGE: CHUNK}}
    assert serve_all(new)
    assert tile(sound(f"{ROOT}/current/", VARIANT).values(), counts(VARIANT))
    assert tile(sound(f"{ROOT}/revisions/{old}/", BASE).values(), counts(BASE))
    inodes = everywhere(f"stat -c %i {ROOT}/revisions/*/{LARGE} | sort -u | wc -l")
    assert dict(zip(NODES, inodes, strict=True)) == {"spark1": "1", "spark2": "2", "spark3": "2"}


def test_the_way_back_finds_the_rows_that_it_left(old):
    run = restage(playbook="rollback.yml", checkpoint_endpoint_url="http://198.18.0.254:9", **SHARD)
    assert run.code == 0, run.output[-4000:]
    assert run.total == 0 and serve_all(old)
    sound(f"{ROOT}/current/", BASE)


def test_a_revision_with_the_rows_of_another_group_is_nothing_to_go_back_to(old):
    """The active revision's rows are those of four ranks now, the ones of the revision before it still of three."""
    publish("same")
    four = {**SHARD, "checkpoint_engram_tensor_parallel": 4}
    code, output = play("--tags", "checkpoint", "-e", json.dumps(four))
    assert code != 0 and "checkpoint.engram_served error" in output, output[-4000:]
    assert "engine_state: stopped" in output and "checkpoint_in_place" in output and serve_all(old)
    sound(f"{ROOT}/current/", BASE)
    stop()
    code, output = play("--tags", "checkpoint", "-e", json.dumps(four))
    assert code == 0 and active() == [old] * 3, output[-4000:]
    unit_refuses()
    for given, says in (
        (four, "has the Engram rows of rank 1 of 3 by rule vllm, the engine reads those of rank 1 of 4"),
        ({**SHARD, "checkpoint_engram_placement": "full"}, "and the placement is full"),
    ):
        run = restage(playbook="rollback.yml", **given)
        assert run.code != 0 and says in run.output and "restage.yml" in run.output, run.output[-4000:]
        assert active() == [old] * 3
    serve(old, "-e", json.dumps(SHARD))  # of three ranks again
    sound(f"{ROOT}/current/", BASE)


def test_rows_that_all_revisions_share_are_not_changed_under_the_engine(old):
    publish("same")
    code, output = play("--tags", "checkpoint", "-e", json.dumps(DIRECTORY))
    assert code == 0, output[-4000:]
    rows = f"find {ROOT}/engram {ROOT}/revisions -type f | sort | xargs stat -c '%n %s %Y %i'"
    before = everywhere(rows)
    publish("engram")
    run = restage(**DIRECTORY)
    assert run.code != 0 and run.total == 0
    assert "checkpoint.engram_shared error" in run.output and "checkpoint_in_place" in run.output, run.output[-3000:]
    assert everywhere(rows) == before and active() == [old] * 3 and serve_all(old)


def test_rows_that_the_engine_reads_are_not_changed_by_site_yml(old):
    publish("same")
    code, output = play(
        "--skip-tags", "preflight,memory,verify", "-e", json.dumps({**DIRECTORY, "engine_restart_allowed": True})
    )
    assert code == 0 and serve_all(old), output[-4000:]
    before = everywhere(f"find {ROOT}/engram -type f | sort | xargs stat -c '%n %s %Y %i'")
    new = str(publish("engram")["revision"])
    code, output = play("--tags", "checkpoint", "-e", json.dumps(DIRECTORY))
    assert code != 0 and "checkpoint.engram_served error" in output, output[-4000:]
    assert everywhere(f"find {ROOT}/engram -type f | sort | xargs stat -c '%n %s %Y %i'") == before
    assert everywhere(f"ls -d {ROOT}/revisions/{new} 2>/dev/null || true") == [""] * 3 and serve_all(old)


def test_files_of_somebody_else_under_the_names_of_slices_are_refused_before_anything_moves_or_stops(old):
    place = "/var/tmp/foreign-rows"
    everywhere(f"mkdir -p {place} && echo mine >{place}/{LARGE}")
    given = {**DIRECTORY, "checkpoint_engram_directory": place, "checkpoint_in_place": True}
    run = restage(**given)
    assert run.code != 0 and "checkpoint.engram_place error" in run.output and run.total == 0, run.output[-4000:]
    assert serve_all(old)
