# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.fabric_netplan: waits for the node over new connections. Documented in plugins/modules."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.fabric import deadman, guard
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import PORT_OPTIONS
from ansible_collections.gb10.ring.plugins.module_utils.fabric.proof import reachable_check
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import errors, failed
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import verdict

MODULE = "gb10.ring.fabric_netplan"
POLL = 0.5  # seconds
RESTORE_SECONDS = 60.0  # what a node may take to bring its earlier network back, after its timer
TIMER_MARGIN = 10.0  # seconds that confirming all nodes may take
SPEC = {
    "node": {"type": "str", "required": True},
    "ports": {"type": "list", "elements": "dict", "required": True, "options": PORT_OPTIONS},
    "mtu": {"type": "int", "default": 9000},
    "phase": {
        "type": "str",
        "required": True,
        "choices": ["plan", "apply", "prove", "confirm", "clean", "rollback", "status"],
    },
    "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    "path": {"type": "path", "default": "/etc/netplan/60-gb10-ring.yaml"},
    "foreign": {"type": "str", "default": "refuse", "choices": ["refuse", "migrate"]},
    "quarantine": {"type": "bool", "default": False},
    "while_serving": {"type": "bool", "default": False},
    "renderer": {"type": "str", "default": "auto", "choices": ["auto", "networkd", "NetworkManager"]},
    "management_interface": {"type": "str", "default": "enP7s7"},
    "confirm_timeout": {"type": "int", "default": 45},
    "check_timeout": {"type": "int", "default": 30},
}


class SilentError(Exception):
    """The node did not answer until a deadline; its text says what the last attempt met."""


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, self._options = self.validate_argument_spec(argument_spec=SPEC)
        self._vars = task_vars or {}
        phase = self._options["phase"]
        waiting = {"plan": self._plan, "apply": self._apply, "prove": self._prove, "rollback": self._rollback}
        if phase in waiting and (phase == "plan" or not self._task.check_mode):
            return {**result, **waiting[phase]()}
        return {**result, **self._module(phase)}

    def _module(self, phase: str, **other: Any) -> dict[str, Any]:
        arguments = {**self._options, **other, "phase": phase}
        return self._execute_module(module_name=MODULE, module_args=arguments, task_vars=self._vars)

    def _plan(self) -> dict[str, Any]:
        answer = self._module("plan")
        if answer.get("leftover") != guard.ARMED:
            return answer
        if self._task.check_mode:
            left = "an earlier run left a change unconfirmed; a real run brings the earlier network back first, so its plan may differ"
            return {**answer, "warnings": [left]}
        undone = self._rollback()
        if undone.get("failed"):
            return undone
        said = f"an earlier run left a change unconfirmed: {undone['msg']}"
        return {**self._module("plan"), "changed": True, "warnings": [said]}

    def _apply(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._options["confirm_timeout"]
        try:
            answer = self._module("apply")
        except AnsibleError as error:  # the network may have changed under the answer
            answer = {"changed": True, "armed": True, "msg": str(error)}
        if answer.get("notes"):
            answer["warnings"] = [f"{self._name()}: {note}" for note in answer["notes"]]
        if answer.get("failed") or not answer["changed"] or not answer["armed"]:
            return answer
        try:
            found = self._until(
                deadline, lambda status: status["outcome"] is not None or status["leftover"] != guard.ARMED
            )
        except SilentError as error:
            return {
                **answer,
                "failed": True,
                "msg": f"{self._name()} does not answer after the change of its network: {error}",
            }
        lost = deadman.describe(found) or str(answer.get("msg", "nothing is armed"))
        problems = found["outcome"]["problems"] if found["outcome"] else [lost]
        if problems:
            said = f"{self._name()}: the new network did not come up: {'; '.join(problems)}"
            return {**answer, "failed": True, "msg": said}
        return answer

    def _prove(self) -> dict[str, Any]:
        """The node's answer over a new connection, then those of its neighbours; less time for them when the timer comes earlier."""
        seconds = float(self._options["check_timeout"])
        try:
            found = self._until(time.monotonic() + seconds, lambda _status: True)
            if found["leftover"] == guard.ARMED:
                seconds = min(seconds, max(1.0, found["seconds_left"] - TIMER_MARGIN))
            answer = self._module("prove", check_timeout=int(seconds))
        except (SilentError, AnsibleError) as error:
            return self._judged({"changed": False}, [self._reachable(str(error))])
        if answer.get("failed"):
            return answer
        return self._judged(answer, [self._reachable(""), *answer["checks"]])

    def _judged(self, answer: dict[str, Any], checks: list[dict[str, Any]]) -> dict[str, Any]:
        if errors(checks):
            return {"changed": False, "failed": True, "msg": verdict("new network", checks), "checks": failed(checks)}
        return {**answer, "checks": checks}

    def _rollback(self) -> dict[str, Any]:
        """Ask until the node says that nothing is armed; one that cannot be reached restores its network by its timer."""
        deadline = time.monotonic() + self._options["confirm_timeout"] + RESTORE_SECONDS
        started = False

        def settled(status: dict[str, Any]) -> bool:
            nonlocal started
            if status["leftover"] == deadman.NONE:
                return True
            started = started or bool(self._module("rollback").get("changed"))
            return False

        try:
            found = self._until(deadline, settled)
        except SilentError as error:
            said = (
                f"{self._name()} could not be asked whether its earlier network is back: {error}. It brings it back by itself; "
                f"if it stays unreachable, log in at its console and read: journalctl -u '{guard.TIMER_UNIT}*'"
            )
            return {"changed": True, "failed": True, "msg": said}
        said = deadman.describe(found)
        failed = bool(said and found["last_restore"]["problems"])
        return {
            "changed": bool(said),
            "failed": failed,
            "msg": f"{self._name()}: {said or 'its network was not changed'}",
        }

    def _until(self, deadline: float, done: Any) -> dict[str, Any]:
        """The first status that satisfies ``done``, each asked over a new connection. Raises SilentError."""
        last = "no attempt was made"
        while True:
            try:
                self._connection.reset()
                status = self._module("status")
                if status.get("failed") or status.get("unreachable"):
                    last = str(status.get("msg", status))
                elif done(status):
                    return status
                else:
                    last = f"its last state was {status['leftover']}"
            except AnsibleError as error:
                last = str(error)
            if time.monotonic() >= deadline:
                raise SilentError(last)
            time.sleep(POLL)

    def _reachable(self, problem: str) -> dict[str, Any]:
        return reachable_check(self._name(), problem).to_dict()

    def _name(self) -> str:
        return str(self._options["node"])
