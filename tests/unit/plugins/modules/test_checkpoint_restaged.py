# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second revision of a checkpoint with slices and an edited config.json, through the modules that stage, edit and activate."""

from __future__ import annotations

import json
import shutil

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import (
    row_frontend,
    row_serving,
    row_survey,
    source,
    survey,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.modules import (
    checkpoint_activate,
    checkpoint_config,
    checkpoint_prune,
    checkpoint_stage,
    engram_rows,
)
from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import FIRST, SECOND, THIRD

SLICED = [SECOND, THIRD]
HEADS = {"num_attention_heads": 64, "o_groups": 8}


class Site:
    """A store and a node. asked: paths that left the store since the last call."""

    def __init__(self, capsys, store, small, root):
        self.capsys, self.store, self.small, self.root = capsys, store, small, root
        self.layout = Layout(str(root), "tiny")

    def call(self, module, **arguments):
        self.store.seen.clear()
        with patch_module_args({"root": str(self.root), **arguments}), pytest.raises(SystemExit):
            module.main()
        return json.loads(self.capsys.readouterr().out)

    @property
    def asked(self):
        return {path for path, _headers in self.store.seen}

    def stage(self, revision, sliced=None, **more):
        place = self.root.parent / f"{self.root.name}.sources"
        place.write_text(source.render(self.store.sources()), encoding="ascii")
        given = {"plan": row_process.plan_of(self.store, revision=revision), "node": "n1", "disk_ceiling_percent": 100}
        given |= {"sliced": SLICED if sliced is None else sliced, "sources_file": str(place)}
        return self.call(checkpoint_stage, **{**given, **more})

    def rows(self, revision, placement="shard", tp=3, **more):
        wanted = row_process.rows_of(
            self.small.config, self.small.files, tp=tp, rank=1, rule="vllm", placement=placement
        )
        plan = row_process.plan_of(self.store, revision=revision)
        return self.call(engram_rows, **row_process.arguments(plan, wanted, self.root, self.store.sources(), **more))

    def fit(self, revision, tp=3):
        return self.call(checkpoint_config, name="tiny", revision=revision, tensor_parallel=tp)

    def activate(self, revision, **more):
        return self.call(checkpoint_activate, name="tiny", revision=revision, **more)

    def serve(self, revision):
        """All that the role does for a revision."""
        done = [self.stage(revision), self.rows(revision), self.fit(revision), self.activate(revision)]
        assert not any(result.get("failed") for result in done), done

    def change(self, path, at):
        body = bytearray(self.store.objects[path])
        body[at] ^= 1
        self.store.objects[path] = bytes(body)

    def problems(self, revision):
        """What is wrong with the rows, as an engine's reader finds them, against the whole files of the store."""
        whole = self.root.parent / f"{self.root.name}.whole"
        whole.mkdir(exist_ok=True)
        for path, body in self.store.objects.items():
            (whole / path).write_bytes(body)
        return engram_reader.problems(self.layout.revision(revision), whole)


@pytest.fixture
def site(capsys, tmp_path):
    small = engram_shards.small("official", vocabulary=40)
    small.config["text_config"].update(HEADS)
    small.files["config.json"] = json.dumps(small.config, indent=2).encode()
    with object_server.serving(**small.files) as store:
        yield Site(capsys, store, small, tmp_path / "root")


def config(site, revision):
    return json.loads((site.layout.revision(revision) / "config.json").read_text())


def test_an_update_links_slices_and_takes_the_kept_original_of_config_json(site):
    site.serve("one")
    site.change(FIRST, -1)
    site.stage("two")
    assert site.asked == {FIRST}
    assert config(site, "two")["text_config"]["num_attention_heads"] == 64
    site.rows("two")
    assert site.asked == set() and site.problems("two") == []
    assert site.fit("two")["rule"] == "tp3" and site.activate("two")["changed"]
    assert config(site, "one") == config(site, "two")
    one, two = (site.layout.revision(name) for name in ("one", "two"))
    assert all((one / path).samefile(two / path) for path in SLICED)
    assert not (one / "config.json").samefile(two / "config.json")
    # What is pruned takes its record along; the original is kept as long as another revision's edit has it.
    site.change(FIRST, -2)
    site.serve("three")
    assert site.call(checkpoint_prune, name="tiny", node="n1")["changed"]
    assert {path.stem for path in site.layout.config_records.iterdir()} == {"two", "three"}
    assert len(list(site.layout.config_originals.iterdir())) == 1
    assert site.problems("three") == []


def test_only_the_rows_of_a_shard_that_changed_are_brought(site):
    site.serve("one")
    site.change(THIRD, -1)
    assert site.stage("two")["changed"]
    site.rows("two", verify_share=0.0)
    assert site.asked == {THIRD} and site.problems("two") == []


# --- in place ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(site, monkeypatch):
    """A node that serves revision one; its disk has no room for the rows of a second one."""
    site.serve("one")

    def used():
        found = {path.stat().st_ino: path.stat().st_blocks * 512 for path in site.root.rglob("*") if path.is_file()}
        return sum(found.values())

    size = used() + 40_000
    for module in (survey, row_survey, row_frontend):
        monkeypatch.setattr(module, "disk_of", lambda _path: Disk(size, size - used()))
    site.change(THIRD, -1)
    body = json.loads(site.store.objects["config.json"])
    site.store.objects["config.json"] = json.dumps({**body, "new": 1}, indent=2).encode()
    return size


def budget(site):
    """What is needed for rows, and what checkpoint_stage says to that."""
    rows = site.rows("two", phase="budget")
    return rows["needed"], {"also_needed": rows["needed"]}


def test_slices_that_stay_are_carried_over_and_the_others_make_room(site, disk):
    needed, beside = budget(site)
    allocated = (site.layout.revision("one") / THIRD).stat().st_blocks * 512
    assert abs(needed - allocated) <= 1 << 16  # a file system may take some blocks more
    refused = site.stage("two", **beside)
    assert refused["failed"] and "checkpoint_in_place: true" in refused["msg"] and THIRD in refused["msg"]
    told = site.stage("two", phase="budget", in_place=True, **beside)
    assert THIRD in told["in_place"]["files"] and SECOND not in told["in_place"]["files"]
    assert told["in_place"]["after"] <= disk and told["stages"]
    inode = (site.layout.revision("one") / SECOND).stat().st_ino
    assert site.stage("two", in_place=True, **beside)["changed"]
    assert (site.layout.revision("two") / SECOND).stat().st_ino == inode
    assert not site.layout.revision("one").exists() and not site.layout.config_records.joinpath("one.json").exists()
    assert site.activate("two")["failed"]  # the rows of the other table are not there yet
    site.rows("two", verify_share=0.0)
    assert site.asked == {THIRD} and site.problems("two") == []
    assert site.fit("two")["rule"] == "tp3" and site.activate("two")["changed"]


def test_an_interrupted_replacement_still_has_the_slices(site, disk):
    needed, beside = budget(site)
    site.store.faults["config.json"] = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    assert site.stage("two", in_place=True, **beside)["failed"]
    site.store.faults["config.json"] = []
    assert not site.layout.receipt("one").exists() and not (site.layout.revision("one") / THIRD).exists()
    again, beside = budget(site)
    assert again == needed
    done = site.stage("two", in_place=True, **beside)
    assert done["changed"], done
    site.rows("two", verify_share=0.0)
    assert site.asked == {THIRD} and site.problems("two") == []


# --- one directory for all revisions ----------------------------------------------------------------------------------


def test_a_revision_whose_rows_are_not_those_of_the_shared_directory_is_not_activated(site):
    engram = {"placement": "directory", "rule": "vllm", "tensor_parallel": 3, "rank": 1}
    assert site.stage("zero", [])["changed"]
    refused = site.activate("zero", engram=engram)
    assert refused["failed"] and "nothing says that rows are in" in refused["msg"]
    shared = {"engram": {**engram, "directory": str(site.layout.base / "engram")}}
    for revision in ("one", "two"):
        site.stage(revision, [])
        site.rows(revision, "directory")
        assert site.activate(revision, **shared)["changed"]
        site.change(FIRST, -1)
    assert site.activate("one", **shared)["changed"]  # the tables are the same
    site.change(THIRD, -1)
    site.stage("three", [])
    refused = site.activate("three", phase="prepare", **shared)
    assert refused["failed"] and THIRD in refused["msg"] and "as revision two has them" in refused["msg"]
    site.rows("three", "directory")
    assert site.activate("three", **shared)["changed"]
    assert site.activate("two", **shared)["failed"] and site.activate("two")["changed"]
    # Its tables are the right ones, its rows those of another rank.
    refused = site.activate("three", engram={**engram, "tensor_parallel": 4})
    assert refused["failed"] and "engram has the Engram rows of rank 1 of 3 by rule vllm" in refused["msg"]
    site.stage("three", SLICED)
    site.rows("three")
    refused = site.activate("three", engram=engram)
    assert refused["failed"] and "has slices of" in refused["msg"] and "the placement is directory" in refused["msg"]


def test_a_switch_goes_back_to_no_revision_whose_rows_are_gone(site):
    engram = {"placement": "directory", "rule": "vllm", "tensor_parallel": 3, "rank": 1}
    site.stage("one", [])
    site.rows("one", "directory")
    assert site.activate("one", engram=engram)["changed"]
    site.change(THIRD, -1)
    site.stage("two", [])
    shutil.rmtree(site.layout.base / "engram")  # no record says that the rows were those of revision one
    site.rows("two", "directory", verify_share=0.0)
    for phase in ("prepare", "commit"):
        assert site.activate("two", phase=phase, engram=engram, origin="one")["changed"]
    refused = site.activate("two", phase="revert", engram=engram)
    assert refused["failed"] and "cannot go back to one of tiny" in refused["msg"]
    assert THIRD in refused["msg"] and "bring those of this revision first (restage.yml)" in refused["msg"]
    assert (
        site.layout.current.readlink().name == "two" and json.loads(site.layout.switch.read_text())["target"] == "two"
    )
    assert site.activate("two", phase="revert")["revision"] == "one"  # nobody is going to serve it


def test_a_switch_goes_back_to_a_revision_with_its_rows(site):
    engram = {"placement": "directory", "rule": "vllm", "tensor_parallel": 3, "rank": 1}
    for revision in ("one", "two"):
        site.stage(revision, [])
        site.rows(revision, "directory")
        site.activate(revision, engram=engram, phase="now" if revision == "one" else "prepare")
        site.change(FIRST, -1)
    assert site.activate("two", phase="commit", engram=engram)["revision"] == "two"
    assert site.activate("two", phase="revert", engram=engram)["revision"] == "one"


# --- what stands against it, before anything is done ------------------------------------------------------------------


def bad(told):
    return {check["id"]: check for check in told["checks"] if not check["ok"]}


def test_files_of_somebody_else_in_the_place_of_slices_are_told_of_at_once(site, tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    (place / SECOND).write_bytes(b"mine")
    found = bad(site.rows("one", "directory", phase="budget", directory=str(place)))
    assert list(found) == ["checkpoint.engram_place"]
    assert f"{SECOND} in {place} were not brought by gb10.ring" in found["checkpoint.engram_place"]["found"]
    assert "name another directory" in found["checkpoint.engram_place"]["cure"]


def test_a_record_that_cannot_be_read_is_told_of_at_once(site, tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    (place / "engram-local.json").write_text("torn")
    found = bad(site.rows("one", "directory", phase="budget", directory=str(place)))
    assert "was not written by gb10.ring" in found["checkpoint.engram_place"]["found"]
    assert found["checkpoint.engram_place"]["cure"]


@pytest.mark.parametrize("placement", ["directory", "shard"])
def test_rows_under_a_running_engine_are_told_of_at_once(site, tmp_path, monkeypatch, placement):
    sliced = SLICED if placement == "shard" else []
    site.stage("one", sliced)
    site.rows("one", placement)
    model = {"root": str(site.layout.base), "revision": "one"}
    model |= {"engram": str(site.layout.base / "engram")} if placement == "directory" else {}
    record = tmp_path / "engine.json"
    record.write_text(json.dumps({"engine": "vllm", "size": 3, "rank": 1, "model": model}))
    looked = row_serving.look
    monkeypatch.setattr(row_serving, "look", lambda layout: looked(layout, str(record)))
    monkeypatch.setattr(row_serving, "_runs", lambda: True)
    assert bad(site.rows("one", placement, phase="budget")) == {}
    assert list(bad(site.rows("one", placement, 4, phase="budget"))) == ["checkpoint.engram_served"]
    refused = site.rows("one", placement, 4)  # by a task of its own, too
    assert refused["failed"] and "would become others. Cure: stop the group first" in refused["msg"]
    site.change(THIRD, -1)
    found = bad(site.rows("two", placement, phase="budget"))
    assert list(found) == (["checkpoint.engram_served"] if placement == "directory" else [])
    monkeypatch.setattr(row_serving, "_runs", lambda: False)
    assert bad(site.rows("two", placement, 4, phase="budget")) == {}
