# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.report: prints, writes and judges; the documentation is in plugins/modules/report.py."""

from __future__ import annotations

import datetime
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import errors, failed
from ansible_collections.gb10.ring.plugins.module_utils.report.document import Report
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import table, verdict
from ansible_collections.gb10.ring.plugins.plugin_utils import reporting

PATHS = {"json": "path", "html": "html_path", "junit": "junit_path", "history": "history_path"}
SPEC = {
    "title": {"type": "str", "required": True},
    "checks": {"type": "list", "elements": "dict", "required": True},
    "rows": {"type": "list", "elements": "dict", "default": []},
    "site": {"type": "dict"},
    **{name: {"type": "path"} for name in PATHS.values()},
    "history_keep": {"type": "int", "default": 30},
    "benchmark_path": {"type": "path"},
    "warnings": {"type": "str", "choices": ["warn", "fail"], "default": "warn"},
}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=SPEC)
        checks, title = options["checks"], options["title"]
        held, problems = self._benchmark(options["benchmark_path"])
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        report = Report(title, now, checks, options["site"], held)
        text = verdict(title, checks)
        written = reporting.Written() if self._task.check_mode else self._write(report, options)
        problems += written.problems
        if options["rows"]:
            Display().display(f"\n{table(options['rows'])}\n")
        result.update(
            changed=False,
            msg="\n".join(
                [
                    text,
                    *(f"written: {path}" for path in written.files),
                    *(f"report {title}: {problem}" for problem in problems),
                ]
            ),
            result=report.result,
            counts=report.counts,
            failed_checks=[dict(check) for check in failed(checks)],
            rows=options["rows"],
            written=[str(path) for path in written.files],
            problems=problems,
        )
        if problems or errors(checks) or (report.result == "warnings" and options["warnings"] == "fail"):
            result["failed"] = True
        elif report.result == "warnings":
            result["warnings"] = [text]
        elif options["site"]:
            Display().display(f"{result['msg']}\n")  # Ansible shows no message of a task that is well
        return result

    def _benchmark(self, path):
        """The last one, and what is wrong with its file: that takes only the benchmark from the report."""
        try:
            return reporting.benchmark(self._path(path)), []
        except HostError as error:
            return None, [str(error)]

    def _write(self, report, options):
        """All forms that are asked for."""
        paths = {form: self._path(options[name]) for form, name in PATHS.items()}
        forms = reporting.Forms(
            **paths, keep=max(1, options["history_keep"]), warnings_fail=options["warnings"] == "fail"
        )
        return reporting.write(report, forms)

    def _path(self, text):
        return Path(self._loader.path_dwim(text)) if text else None
