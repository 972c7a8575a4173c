# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replacing the active revision in place, from the plan over the decision of the group to the staging."""

from __future__ import annotations

import json
import random

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.action.checkpoint_restage import budget_node
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import replace, restage, source, survey
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.modules import checkpoint_activate, checkpoint_stage
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_request

RANDOM = random.Random(8)
MIB = 1 << 20
BODIES = {"a.txt": b"small", "large": RANDOM.randbytes(8 * MIB), "same": RANDOM.randbytes(3 * MIB)}


class Site:
    """A store and a node, whose disk of this size holds nothing else."""

    def __init__(self, capsys, store, root):
        self.capsys, self.store, self.root, self.size = capsys, store, root, 1 << 40
        self.layout = Layout(str(root), "tiny")

    def disk(self, _path):
        files = {path.stat().st_ino: path.stat().st_blocks * 512 for path in self.root.rglob("*") if path.is_file()}
        return Disk(self.size, self.size - sum(files.values()))

    def call(self, module, **arguments):
        with patch_module_args({"root": str(self.root), **arguments}), pytest.raises(SystemExit):
            module.main()
        return json.loads(self.capsys.readouterr().out)

    def stage(self, revision, **more):
        place = self.root.parent / "sources"
        place.write_text(source.render(self.store.sources()), encoding="ascii")
        plan = stage_request.planned(self.store, revision, chunk=16 * MIB).to_dict()
        given = {"plan": plan, "node": "n1", "disk_ceiling_percent": 100, "sources_file": str(place)}
        return self.call(checkpoint_stage, **{**given, **more})

    def activate(self, revision, **more):
        return self.call(checkpoint_activate, name="tiny", revision=revision, **more)

    def told(self, revision, consent):
        return self.stage(revision, phase="budget", in_place=consent)

    def decided(self, revision, consent=True):
        """What the group, which is this node, does; its engine serves what is active."""
        told = self.told(revision, consent)
        told["standing"]["serves"] = told["standing"]["current"]
        known = {"checkpoint_budget": told, "engine_checks": {"checks": [{"ok": True}]}}
        return restage.decide([budget_node("n1", known)], revision, consent)

    def contents(self, revision):
        return {path.name: path.read_bytes() for path in self.layout.revision(revision).iterdir()}


@pytest.fixture
def site(capsys, tmp_path, monkeypatch):
    """Revision one is active; the store holds another one."""
    with object_server.serving(**BODIES) as store:
        made = Site(capsys, store, tmp_path / "root")
        monkeypatch.setattr(survey, "disk_of", made.disk)
        assert made.stage("one")["changed"] and made.activate("one")["changed"]
        store.objects["large"] = RANDOM.randbytes(8 * MIB)
        yield made


def test_room_that_is_lost_after_the_plan_costs_nothing_of_what_is_served(site):
    """An image that is pulled between plan and staging, say."""
    site.size = 40 * MIB
    decision = site.decided("two")
    assert (decision.in_place, decision.origin) == ((), "one")
    (site.root / "image").write_bytes(bytes(23 * MIB))
    refused = site.stage("two", in_place=decision.to_dict()["in_place"])
    assert refused["failed"] and "not enough room" in refused["msg"] and "to come" in refused["msg"]
    assert site.contents("one") == BODIES and site.layout.receipt("one").exists()


def test_a_replacement_goes_on_by_its_own_decision(site):
    site.size = 15 * MIB
    site.store.faults["large"] = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    assert site.decided("two").in_place == ("n1",)
    assert site.stage("two", in_place=True)["failed"] and not site.layout.receipt("one").exists()
    site.store.faults["large"] = []
    site.size = 1 << 40  # however much room there is by now, nothing whole is left to be served
    decision = site.decided("two")
    assert decision.in_place == ("n1",)
    assert site.stage("two", in_place=decision.to_dict()["in_place"])["changed"]
    assert site.contents("two") == site.store.objects and not site.layout.replacing.exists()


# --- a run that ended between the receipt of the new revision and the end of the replacement ---------------------------


@pytest.fixture
def ended(site, monkeypatch):
    """Its revision is active and served."""
    site.size = 15 * MIB
    with monkeypatch.context() as patched:
        patched.setattr(replace, "finish", lambda *_arguments: None)
        assert site.stage("two", in_place=True)["changed"] and site.activate("two")["changed"]
    assert site.layout.replacing.exists() and site.layout.revision("one").is_dir()
    return site


def over(site):
    return not site.layout.replacing.exists() and not site.layout.revision("one").exists()


def test_the_next_run_finishes_it_and_stops_nothing(ended):
    decision = ended.decided("two")
    assert (decision.stage, decision.switch, decision.in_place) == (True, False, ())
    assert not ended.stage("two")["changed"] and over(ended)
    assert ended.contents("two") == ended.store.objects
    assert not ended.decided("two").stage


def test_a_small_update_after_it_is_staged_beside(ended):
    ended.store.objects["a.txt"] = b"third"
    decision = ended.decided("three")
    assert (decision.in_place, decision.origin) == ((), "two")
    assert ended.stage("three", in_place=False)["changed"] and over(ended)
    assert ended.contents("three") == ended.store.objects and ended.layout.receipt("two").exists()


def test_a_large_update_after_it_replaces_the_active_revision(ended):
    ended.store.objects["large"] = RANDOM.randbytes(8 * MIB)
    decision = ended.decided("three")
    assert decision.in_place == ("n1",) and "1 file of revision two are replaced (large)" in decision.text()
    assert ended.stage("three", in_place=True)["changed"] and over(ended)
    assert ended.contents("three") == ended.store.objects and not ended.layout.revision("two").exists()


@pytest.mark.parametrize("left", ["journal", "staging"])
def test_what_else_is_left_beside_a_complete_revision_goes(site, left):
    assert site.stage("two")["changed"] and site.activate("two")["changed"]
    place = getattr(site.layout, left)("two")
    place.mkdir() if left == "staging" else place.write_text("")
    assert site.decided("two").stage
    assert not site.stage("two")["changed"] and not place.exists()
    assert not site.decided("two").stage
