# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_decide import RowStaging, RowStep, linked_paths
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlan, Target
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_state import Work
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_survey import Slices


def test_slices_that_are_linked_give_nothing_back_where_they_come_from():
    old = Slices(Path("/srv/tiny/revisions/old"))
    steps = tuple(
        RowStep(Target(path, 100, 8, (), {}), File(path, 100, "e", ""), Work(path, 100), way, old)
        for path, way in (("a", "link"), ("b", "copy"), ("c", "keep"))
    )
    plan = RowPlan(rank=1, tp=3, rule="vllm", placement="shard", layers={}, targets=())
    assert linked_paths(RowStaging(plan, "new", steps)) == {"old/a"}
