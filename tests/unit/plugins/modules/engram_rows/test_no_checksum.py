# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of objects that have only an ETag (checkpoint_require_checksum: false)."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import SECOND, THIRD
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import WITHOUT, call, staged


@pytest.fixture(params=["directory", "shard"])
def bring(case, request):
    """Brings the rows to a revision; paths that were asked for. etags: of objects that were replaced."""

    def bringing(revision="one", etags=None):
        rows = case.rows(placement=request.param)
        plan = row_process.plan_of(case.store, chunked=False, revision=revision)
        for file in plan["files"]:
            file["digest"] = "etag:" + (etags or {}).get(file["path"], file["etag"].strip('"'))
        model = staged(case.small, case.root, plan, rows)
        case.store.seen.clear()
        result = call(case.capsys, row_process.arguments(plan, rows, case.root, case.store.sources(), **WITHOUT))
        assert not result.get("failed"), result
        place = model if request.param == "shard" else case.root / "tiny/engram"
        assert engram_reader.problems(place, case.whole) == []
        return result["changed"], {path for path, _headers in case.store.seen} & {SECOND, THIRD}

    return bringing


def test_a_second_run_brings_nothing(bring):
    assert bring() == (True, {SECOND, THIRD})
    assert bring() == (False, set())


def test_another_etag_is_another_object(bring):
    bring()
    assert bring(etags={SECOND: "another"}) == (True, {SECOND})


def test_another_revision_has_rows_of_its_own_as_it_has_whole_files(bring):
    bring()
    assert bring("two") == (True, {SECOND, THIRD})
    assert bring("two") == (False, set())
