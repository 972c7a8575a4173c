# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_publish: all of it, no node is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, objects, publish
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import PAIRS, PUBLISH_OPTIONS, range_problems
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import Meter, line
from ansible_collections.gb10.ring.plugins.plugin_utils import local_files, publishing, s3, terminal
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=PUBLISH_OPTIONS, required_together=PAIRS)
        try:
            return {**result, **self._publish(options)}
        except (S3Error, local_files.LocalError, manifest.ManifestError) as error:
            return {**result, "failed": True, "msg": str(error)}

    def _publish(self, options: dict[str, Any]) -> dict[str, Any]:
        settings = s3.Settings.from_options(options)
        name = options["name"] or objects.default_name(settings.prefix, settings.bucket)
        problems = [*range_problems(options), manifest.name_problem(name)]
        if any(problems):
            raise manifest.ManifestError("; ".join(problem for problem in problems if problem))
        files = local_files.find(options["source"], options["source_revision"] or "", options["files"])
        job = publishing.Job(s3.connect(settings), settings, name, options["upload_part_mib"] << 20, options["workers"])
        seen = publishing.look(job, files)
        plan = publish.plan_of(seen, str(settings.where))
        manifest_text, numbers = "", {}
        if seen.changed and not self._task.check_mode:
            manifest_text, numbers = self._apply(job, seen, options["progress"])
        return {
            "changed": plan.changed,
            "msg": "; ".join(plan.reasons()) or f"{settings.where}: everything is published",
            "diff": plan.diff(),
            "published": publishing.summary(job, seen, manifest_text) | numbers,
        }

    def _apply(self, job: publishing.Job, seen: publish.Publication, choice: str) -> tuple[str, dict[str, Any]]:
        """The manifest as it was written, and what it took."""
        meter = Meter(sum(item.local.size for item in seen.uploads), len(seen.uploads))

        def moved(count: int, earlier: bool) -> None:
            if earlier:
                meter.resumed(count)
            else:
                meter.moved("s3", count)

        show = Display().display if terminal.wanted(choice) else None
        with terminal.lines(lambda: line("publish", meter.progress("publishing")), show):
            text = publishing.apply(replace(job, moved=moved, finished=meter.file), seen)
        numbers = meter.numbers()
        return text, {name: numbers[name] for name in ("resumed_bytes", "seconds", "mb_per_s")}
