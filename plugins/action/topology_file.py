# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.topology_file: judges, prints and writes; the documentation is in plugins/modules."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.fabric.discover import DiscoverError, discover
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change, Plan
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import verdict

SPEC = {
    "path": {"type": "path", "required": True},
    "hosts": {"type": "list", "elements": "str", "required": True},
    "name": {"type": "str", "default": "fabric_cabling_result"},
    "supernet": {"type": "str"},
    "overwrite": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=SPEC)
        hostvars = task_vars["hostvars"]
        results = [hostvars[host][options["name"]] for host in options["hosts"] if options["name"] in hostvars[host]]
        path = Path(self._loader.path_dwim(options["path"]))
        try:
            addresses = {host: management_address(host, hostvars[host]) for host in options["hosts"]}
            found = discover(results, addresses, options["supernet"])
            plan = self._write(path, found.text, options["overwrite"]) if found.text else Plan()
        except (DiscoverError, HostError) as error:
            raise AnsibleActionFail(f"discover: {error}") from error
        checks = [check.to_dict() for check in found.verdict.checks]
        summary = f"{found.verdict.plan.shape} of {', '.join(found.verdict.plan.nodes)}"
        result.update(changed=plan.changed, diff=plan.diff(), path=str(path), checks=checks, content=found.text or "")
        result["msg"] = f"{summary}, written to {path}" if found.text else verdict("discover", checks)
        result["failed"] = found.text is None
        return result

    def _write(self, path, text, overwrite):
        """Bring the file to the text, other than in check mode; the plan of it. Raises DiscoverError, HostError."""
        before = read_text(path)
        if before == text:
            return Plan()
        if before is not None and not overwrite:
            raise DiscoverError(
                f"{path} is there and differs from what was found, which is\n{text}Expected: no such file, or the same. Cure: "
                "compare the two, then set discover_overwrite: true, or another discover_topology_file"
            )
        plan = Plan((Change(str(path), before or "", text, "as the cables are"),))
        if not self._task.check_mode:
            write_text(path, text)
        return plan


def management_address(host, variables):
    """The IPv4 address by which Ansible reaches the host. Raises DiscoverError when its name has none."""
    name = str(variables.get("ansible_host", host))
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        pass
    try:
        return socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    except OSError as error:
        raise DiscoverError(
            f"{name}: no IPv4 address ({error}), expected a name that has one; give addresses with -i"
        ) from error
