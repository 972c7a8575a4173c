# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.engine_ready: waits in slices, and stops every rank's wait once one rank's engine has ended.

Without it the head would be waited for until the timeout although a worker said at once why it cannot start. The
documentation is in plugins/modules/engine_ready.py.
"""

from __future__ import annotations

import time
from pathlib import Path

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

MODULE = "gb10.ring.engine_ready"
DEFAULT_TIMEOUT = 900
SLICE = 10  # s; the longest that a rank goes on waiting after another has failed


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            total = int(arguments.get("timeout_s", DEFAULT_TIMEOUT))
        except (TypeError, ValueError):
            raise AnsibleActionFail(
                f"timeout_s is {arguments['timeout_s']!r}, expected seconds, a whole number"
            ) from None
        # Workers of one run share its local temporary directory, which goes with the run; the task's id is the same for all hosts.
        alarm = Path(constants.DEFAULT_LOCAL_TMP) / f"gb10-ring-engine-{self._task._uuid}"
        deadline = time.monotonic() + total
        while True:
            left = deadline - time.monotonic()
            arguments["timeout_s"] = max(0, min(SLICE, round(left)))
            result.update(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars))
            if result.get("failed") or result.get("state") == "ended":
                alarm.touch()
            if result.get("failed") or result["state"] != "waiting" or left <= SLICE or alarm.exists():
                return result
