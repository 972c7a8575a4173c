# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_plan: asks the object store what a checkpoint consists of. Reads only."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import units
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import PAIRS, PLAN_OPTIONS, range_problems
from ansible_collections.gb10.ring.plugins.plugin_utils import s3, s3_plan
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=PLAN_OPTIONS, required_together=PAIRS)
        settings = s3.Settings.from_options(options)
        wish = s3_plan.Wish(
            name=options["name"] or "",
            files=tuple(options["files"]),
            require_checksum=options["require_checksum"],
            revision=options["revision"] or "",
            sources=tuple(options["checksum_sources"]),
            lists=tuple(options["digest_lists"]),
        )
        try:
            problems = range_problems(options)
            if problems:
                raise ManifestError("; ".join(problems))
            client = s3.connect(settings)
            planned = s3_plan.plan(client, settings, wish)
            config = s3_plan.config_for(client, settings, planned, options["tensor_parallel"])
        except (S3Error, ManifestError) as error:
            return {**result, "failed": True, "msg": str(error)}
        text = (
            f"{planned.name} revision {planned.revision}: {units.files(len(planned.files))}, {units.human(planned.bytes)}; "
            f"checksums from {s3_plan.sources_text(planned.files)}"
        )
        return {**result, "changed": False, "msg": text, "plan": planned.to_dict(), "config": config}
