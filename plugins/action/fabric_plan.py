# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.fabric_plan: prints the table, writes the drawing. The documentation is in plugins/modules."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change, Plan
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import table
from ansible_collections.gb10.ring.plugins.module_utils.topology.drawing import svg
from ansible_collections.gb10.ring.plugins.module_utils.topology.view import ViewError, fabric_view, rows

SPEC = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "path": {"type": "path"},
}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=SPEC)
        try:
            view = fabric_view(task_vars["hostvars"], options["hosts"])
        except ViewError as error:
            raise AnsibleActionFail(f"fabric plan: {error}") from error
        lines = rows(view)
        Display().display(f"\n{table(lines)}\n")
        result.update(changed=False, rows=lines, legs=[leg.to_dict() for leg in view.legs])
        if options["path"]:
            path = Path(self._loader.path_dwim(options["path"]))
            plan = self._drawing(path, svg(view))
            result.update(changed=plan.changed, diff=plan.diff(), path=str(path))
        return result

    def _drawing(self, path, text):
        """Write the drawing unless it is there already."""
        try:
            before = read_text(path)
            plan = Plan(() if before == text else (Change(str(path), before or "", text, "the drawing of the plan"),))
            if plan.changed and not self._task.check_mode:
                write_text(path, text)
        except HostError as error:
            raise AnsibleActionFail(f"fabric plan: {error}") from error
        return plan
