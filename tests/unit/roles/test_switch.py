# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a switch that fails leaves and says, whichever of its steps fails: the role's own tasks, run by Ansible."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.tests.unit.fixtures.switch_run import NODES, Group


@pytest.fixture
def group(tmp_path):
    return Group(tmp_path)


def standings(group):
    return {group.standing(node) for node in NODES}


def flat(said):
    return " ".join(said.split())


def test_what_the_engine_refuses_goes_back(group):
    group.stand("one", "one")
    said = flat(group.switch(engine_refused="two"))
    assert "All nodes are back at revision one and were accepted with it" in said
    assert standings(group) == {("one", "one", "")}
    assert group.told("n1") == ["stop", "start two", "stop", "start one"]


@pytest.mark.parametrize("stop", [1, 2], ids=["at-once", "on-the-way-back"])
def test_an_engine_that_does_not_stop_keeps_no_node_from_going_back(group, stop):
    group.stand("one", "one")
    said = flat(group.switch(engine_refused="two", refuses={"n2": stop}))
    assert "n2: its engine could not be stopped: the engine does not end" in said
    assert "On n2 the engine could not be stopped and may still run, so nothing was started" in said
    assert "did not answer" not in said and "is stopped" not in said
    assert standings(group) == {("one", "one", "")}
    assert "start one" not in group.told("n1") + group.told("n3")


def test_what_cannot_be_prepared_goes_on(group):
    group.stand("one", "one")
    group.damage("n2", "two")
    said = flat(group.switch())
    assert "Nothing was stopped or moved: the group goes on as it was" in said
    assert standings(group) == {("one", "one", "")} and group.told("n1") == []


def test_what_cannot_be_prepared_after_the_old_revision_was_replaced_leaves_the_group_stopped(group):
    group.stand("one", "one")
    group.damage("n2", "two")
    said = flat(group.switch(checkpoint_switch_from="", checkpoint_switch_stopped=True))
    assert "Nothing was stopped" not in said
    assert "There was no revision to go back to on all nodes, and the group is stopped" in said
    assert {group.standing(node)[::2] for node in NODES} == {("one", "")}
    assert "start one" not in group.told("n1")


def test_a_switch_that_was_under_way_and_cannot_be_prepared_again_stays_as_it_was(group):
    """Every engine serves revision two; on n3 it was all over already."""
    group.stand("two", "one", "two", nodes=("n1", "n2"))
    group.stand("two", "two", nodes=("n3",))
    before = [json.loads(group.layouts[node].switch.read_text()) for node in ("n1", "n2")]
    group.damage("n2", "two")
    said = flat(group.switch(checkpoint_switch_resumes=True))
    assert "Nothing was stopped or moved: the group goes on as it was" in said
    assert [group.standing(node)[0] for node in NODES] == ["two"] * 3 and group.told("n1") == []
    for node, record in zip(("n1", "n2"), before, strict=True):
        assert group.standing(node)[1:] == (record["active"], record["target"])
