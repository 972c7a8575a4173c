# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.filter.same_revision import FilterModule

same_revision = FilterModule().filters()["same_revision"]
HOSTS = ["n0", "n1", "n2"]


def looked(revision):
    return {"checkpoint_checks": {"checks": [], "checkpoint": {"current": revision}}}


@pytest.mark.parametrize(
    ("hostvars", "told"),
    [
        ([looked("a"), looked("a"), looked("a")], [("n0", True)]),
        ([looked("a"), looked("b"), looked("a")], [("n0", False)]),
        # A node that is gone, one whose look failed, and one that has no part in it say nothing, and carry nothing.
        ([{}, looked("a"), looked("a")], [("n1", True)]),
        ([{"checkpoint_checks": {"unreachable": True}}, looked("a"), looked("b")], [("n1", False)]),
        ([looked("a"), {"checkpoint_checks": {"failed": True}}, {"checkpoint_checks": None}], [("n0", True)]),
        ([looked(""), looked("a"), looked("a")], [("n0", True)]),
        ([looked(""), looked(""), {}], []),
        ([{}, {}, {}], []),
    ],
)
def test_same_revision(hostvars, told):
    found = same_revision(dict(zip(HOSTS, hostvars, strict=True)), HOSTS)
    assert [(check["node"], check["ok"]) for check in found] == told


def test_hosts_outside_of_the_run_do_not_count():
    assert [check["ok"] for check in same_revision({"n0": looked("a"), "n1": looked("b")}, ["n1"])] == [True]


@pytest.mark.parametrize(("node", "count"), [("n0", 1), ("n1", 0), (None, 1)])
def test_one_node_carries_it(node, count):
    found = same_revision({"n0": looked("a"), "n1": looked("b")}, ["n0", "n1"], node=node)
    assert len(found) == count
