# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.engram_rows: plans the rows of the node's rank from the store, then works as checkpoint_stage does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gb10.ring.plugins.action import checkpoint_stage
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, row_layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import ENGRAM_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_place import place_of
from ansible_collections.gb10.ring.plugins.plugin_utils import row_reading, s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error


class ActionModule(checkpoint_stage.ActionModule):
    MODULE = "gb10.ring.engram_rows"
    OPTIONS = ENGRAM_OPTIONS

    def _prepared(self, options: dict[str, Any]) -> dict[str, Any]:
        options = super()._prepared(options)
        if not options["bucket"]:
            raise S3Error("option bucket is missing; the rows follow from headers in the store")
        planned = manifest.parse(options["plan"])
        settings = s3.Settings.from_options(options)
        wanted = row_layout.Wanted(options["tensor_parallel"], options["rank"], options["rule"], options["placement"])
        rows = row_reading.row_plan(s3.connect(settings), settings, planned, wanted)
        return {**options, "rows": rows.to_dict(), "plan": needed(planned, rows)}

    def _signs(self, options: dict[str, Any]) -> tuple[Path, Path]:
        plan = options["plan"]
        place = place_of(Layout(options["root"], plan["name"]), plan["revision"], "full")
        return place.lease, place.progress


def needed(planned: manifest.Manifest, rows: Any) -> dict[str, Any]:
    """The plan with only those files that the rows are taken from: each of them is signed, and their chunks travel to the node."""
    paths = {target.path for target in rows.targets} | {rows.index_path} - {""} or {row_reading.CONFIG}
    files = [file for file in planned.files if file.path in paths]
    return manifest.make(planned.name, planned.revision, files).to_dict()
