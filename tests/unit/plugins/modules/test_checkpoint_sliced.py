# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision whose Engram shards are slices, through the modules that stage, look and activate."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import source
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.shelf import Shelf
from ansible_collections.gb10.ring.plugins.modules import (
    checkpoint_activate,
    checkpoint_info,
    checkpoint_stage,
    engram_rows,
)
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import SECOND, THIRD

SLICED = [SECOND, THIRD]


@pytest.fixture(scope="module")
def small():
    return engram_shards.small("official", vocabulary=40)


class Site:
    """A store and a node. asked: paths that left the store since the last call."""

    def __init__(self, capsys, store, small, root):
        self.capsys, self.store, self.small, self.root = capsys, store, small, root
        self.plan = row_process.plan_of(store, revision="one")
        self.revision = root / "tiny/revisions/one"

    def call(self, module, arguments):
        self.store.seen.clear()
        with patch_module_args(arguments), pytest.raises(SystemExit):
            module.main()
        return json.loads(self.capsys.readouterr().out)

    @property
    def asked(self):
        return {path for path, _headers in self.store.seen}

    def stage(self, sliced=(), **more):
        place = self.root.parent / f"{self.root.name}.sources"
        place.write_text(source.render(self.store.sources()), encoding="ascii")
        given = {"plan": self.plan, "root": str(self.root), "node": "n1", "disk_ceiling_percent": 100}
        return self.call(checkpoint_stage, {**given, "sliced": list(sliced), "sources_file": str(place), **more})

    def rows(self, tp=3, rank=1):
        rows = row_process.rows_of(
            self.small.config, self.small.files, tp=tp, rank=rank, rule="vllm", placement="shard"
        )
        return self.call(engram_rows, row_process.arguments(self.plan, rows, self.root, self.store.sources()))

    def activate(self, **engram):
        given = {"root": str(self.root), "name": "tiny", "revision": "one"}
        return self.call(checkpoint_activate, {**given, **({"engram": engram} if engram else {})})

    def standing(self, **engram):
        """What the node says of itself when it is looked at, and in the budget of a staging."""
        place = {"root": str(self.root), "name": "tiny", "node": "n1", "engram": engram}
        looked = self.call(checkpoint_info, place)["checkpoint"]["standing"]
        assert self.stage(SLICED, phase="budget", sources_file=None, engram=engram)["standing"] == looked
        return looked

    def checks(self, **more):
        place = {"root": str(self.root), "name": "tiny", "node": "n1"}
        # How full the disk of the machine is that runs the tests is no concern of theirs.
        found = self.call(checkpoint_info, {**place, "disk_ceiling_percent": 100, **more})
        return {check["id"]: check for check in found["checks"]}

    def whole(self):
        return {path.name for path in self.revision.iterdir()} == set(self.small.files) and all(
            (self.revision / path).read_bytes() == body for path, body in self.small.files.items()
        )


@pytest.fixture
def site(capsys, small, tmp_path):
    with object_server.serving(**small.files) as store:
        yield Site(capsys, store, small, tmp_path / "root")


@pytest.fixture
def source_directory(small, tmp_path):
    for path, body in small.files.items():
        (tmp_path / path).write_bytes(body)
    return tmp_path


def test_sliced_shards_are_not_fetched_and_the_rest_is(site):
    result = site.stage(SLICED)
    assert result["changed"] and not site.asked & set(SLICED)
    assert {path.name for path in site.revision.iterdir()} == set(site.small.files) - set(SLICED)
    assert not site.stage(SLICED)["changed"]
    after = result["diff"][0]["after"]
    assert after.count("left for a slice") == 2 and "2 files left for slices" in result["diff"][0]["after_header"]


def test_it_cannot_be_activated_before_its_rows_are_there(site):
    site.stage(SLICED)
    refused = site.activate()
    assert refused["failed"] and SECOND in refused["msg"] and "gb10.ring.engram_rows" in refused["msg"]
    site.rows()
    assert site.activate()["changed"]
    (site.revision / "engram-local.json").unlink()
    assert site.activate()["failed"]


OWN = {"placement": "shard", "rule": "vllm", "tensor_parallel": 3, "rank": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"tensor_parallel": 4},
            "has the Engram rows of rank 1 of 3 by rule vllm, the engine reads those of rank 1 of 4 by",
        ),
        ({"rank": 2}, "reads those of rank 2 of 3 by rule vllm"),
        ({"rule": "sglang"}, "reads those of rank 1 of 3 by rule sglang"),
        ({"placement": "full"}, f"has slices of {SECOND}, {THIRD}, and the placement is full"),
    ],
)
def test_a_revision_with_the_rows_of_another_group_is_not_served(site, change, says):
    site.stage(SLICED)
    site.rows()
    assert site.activate(**OWN)["changed"]
    assert site.standing(**OWN) | {"complete": ["one"], "unfit": {}} == site.standing(**OWN)
    refused = site.activate(**{**OWN, **change})
    assert refused["failed"] and says in refused["msg"] and "restage.yml" in refused["msg"]
    found = site.standing(**{**OWN, **change})
    assert found["complete"] == [] and says in found["unfit"]["one"]


def test_whole_shards_are_no_slices_but_what_a_group_can_go_back_to(site):
    """vLLM reads its rows of them where it finds no slices, and says that it did."""
    site.stage()
    refused = site.activate(**OWN)
    assert refused["failed"] and "has whole shards, and the placement is shard" in refused["msg"]
    assert site.standing(**OWN)["complete"] == ["one"]
    assert site.activate(placement="full")["changed"]


@pytest.mark.parametrize("verify", ["recorded", "full"])
def test_the_checkpoint_is_sound_with_slices(site, source_directory, verify):
    site.stage(SLICED)
    site.rows()
    site.activate()
    assert engram_reader.problems(site.revision, source_directory) == []
    checks = site.checks(verify=verify)
    assert all(check["ok"] for check in checks.values() if check["id"] != "checkpoint.config"), checks


def test_from_whole_shards_to_slices_nothing_is_fetched(site, source_directory):
    site.stage()
    assert site.whole()
    assert site.stage(SLICED)["changed"] and site.asked == set()
    assert site.rows()["changed"]
    assert engram_reader.problems(site.revision, source_directory) == []
    allocated = (site.revision / THIRD).stat().st_blocks * 512
    assert allocated < (site.revision / THIRD).stat().st_size / 2


def test_from_slices_to_whole_shards(site):
    site.stage(SLICED)
    site.rows()
    result = site.stage()
    assert result["changed"] and site.asked == set(SLICED)
    assert "a slice" in result["diff"][0]["before"]
    assert site.whole() and site.activate()["changed"]


def test_another_revision_does_not_link_a_slice_as_if_it_were_whole(site):
    site.stage(SLICED)
    site.rows()
    site.plan = row_process.plan_of(site.store, revision="two")
    site.stage()
    assert site.asked >= set(SLICED)
    assert (site.root / "tiny/revisions/two" / SECOND).read_bytes() == site.small.files[SECOND]


def test_what_is_to_come_beside_it_counts(site):
    result = site.stage(SLICED, phase="budget", also_needed=12_345, sources_file=None)
    left = sum(len(body) for path, body in site.small.files.items() if path not in SLICED)
    assert result["budget"]["needed"] == left + 12_345
    assert set(result["lacking"]) == set(site.small.files) - set(SLICED)


def test_a_path_that_is_not_of_the_checkpoint(site):
    result = site.stage(["model-9"])
    assert result["failed"] and "option sliced names model-9, which the plan does not have" in result["msg"]


def test_a_slice_is_never_given_to_a_neighbour(site):
    site.stage()
    digests = {file["path"]: file["digest"] for file in site.plan["files"]}
    shelf = Shelf(Layout(str(site.root), "tiny"), "one", digests, pace_s=0)
    with shelf.open(SECOND) as given:
        assert given.read() == site.small.files[SECOND]
    site.stage(SLICED)
    site.rows()
    assert shelf.open(SECOND) is None and shelf.open(THIRD) is None
    fresh = Shelf(Layout(str(site.root), "tiny"), "one", digests, pace_s=0)
    assert fresh.open(SECOND) is None and fresh.open("config.json") is not None
