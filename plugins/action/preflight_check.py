# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.preflight_check: a node that does not answer becomes a check. Documented in plugins/modules."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.report import preflight


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        node = str(self._task.args.get("node", (task_vars or {}).get("inventory_hostname", "")))
        earliest = time.time()
        try:
            outcome = self._execute_module(module_name="gb10.ring.preflight_check", task_vars=task_vars)
        except AnsibleConnectionFailure as error:
            return {**result, **stand_in(preflight.unreachable(node, str(error), self._ssh_command(task_vars or {})))}
        except AnsibleError as error:  # sudo wants a password, an interpreter that is no path, ...
            return {**result, **stand_in(preflight.not_run(node, str(error), interpreter_unusable=False))}
        latest = time.time()
        if "checks" in outcome:
            outcome["checks"].append(preflight.clock(node, outcome["facts"]["epoch"], earliest, latest).to_dict())
            return {**result, **outcome}
        if outcome.get("_ansible_parsed", True):  # the module itself refused its options: a mistake of the caller
            return {**result, **outcome}
        return {**result, **stand_in(did_not_run(node, outcome))}

    def _ssh_command(self, task_vars):
        options = {}
        for name in ("host", "remote_user", "port"):
            try:
                options[name] = self._connection.get_option(name)
            except KeyError:  # not every connection plugin has them
                options[name] = None
        host = options["host"] or task_vars.get("ansible_host") or task_vars.get("inventory_hostname", "")
        return preflight.ssh_command(host, options["remote_user"] or "", options["port"])


def did_not_run(node, outcome):
    """The check for a module that gave no result. The shell answers 127 for no interpreter; one that is too old can't read the module."""
    said = "\n".join(str(outcome.get(key) or "") for key in ("module_stdout", "module_stderr"))
    unusable = outcome.get("rc") == 127 or "SyntaxError" in said
    return preflight.not_run(node, said if said.strip() else str(outcome.get("msg", "")), interpreter_unusable=unusable)


def stand_in(check):
    """The result of a node that gave none."""
    return {"changed": False, "checks": [check.to_dict()], "facts": {}}
