# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.report: prints, writes and judges; the documentation is in plugins/modules/report.py."""

from __future__ import annotations

import datetime
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, write_text
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import errors, failed
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import document, table, verdict

SPEC = {
    "title": {"type": "str", "required": True},
    "checks": {"type": "list", "elements": "dict", "required": True},
    "rows": {"type": "list", "elements": "dict", "default": []},
    "path": {"type": "path"},
}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=SPEC)
        checks = options["checks"]
        if options["path"] and not self._task.check_mode:
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            path = Path(self._loader.path_dwim(options["path"]))
            try:
                write_text(path, document(options["title"], now, checks))
            except HostError as error:
                raise AnsibleActionFail(f"report {options['title']}: {error}") from error
        text = verdict(options["title"], checks)
        if options["rows"]:
            Display().display(f"\n{table(options['rows'])}\n")
        result.update(
            changed=False, msg=text, failed_checks=[dict(check) for check in failed(checks)], rows=options["rows"]
        )
        if errors(checks):
            result["failed"] = True
        elif any(check["severity"] == "warning" for check in result["failed_checks"]):
            result["warnings"] = [text]
        return result
