# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gb10.ring.plugins.action.fabric_plan import ActionModule
from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology

NODES = [{"name": f"spark{i}", "management_address": f"192.0.2.{10 + i}"} for i in (1, 2, 3)]
HOSTVARS = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": "ring", "nodes": NODES}))


def plan(check_mode=False, **options):
    task = SimpleNamespace(
        args={"hosts": list(HOSTVARS), **options}, async_val=0, check_mode=check_mode, diff=True, action="x"
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return ActionModule(task, connection, None, DataLoader(), None, None).run(task_vars={"hostvars": HOSTVARS})


def test_without_a_path_nothing_is_written():
    result = plan()
    assert len(result["rows"]) == len(result["legs"]) == 6
    assert result["changed"] is False
    assert "path" not in result


def test_the_drawing_is_written_once(tmp_path):
    path = tmp_path / "reports/plan.svg"
    first, second = plan(path=str(path)), plan(path=str(path))
    assert [first["changed"], second["changed"]] == [True, False]
    assert (first["path"], second["diff"]) == (str(path), [])
    assert path.read_text().startswith("<svg ")
    assert first["diff"][0]["before"] == ""
    assert first["diff"][0]["after"] == path.read_text()


def test_check_mode_tells_what_would_be_written(tmp_path):
    result = plan(check_mode=True, path=str(tmp_path / "plan.svg"))
    assert result["changed"] is True
    assert result["diff"][0]["after"].startswith("<svg ")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AnsibleActionFail, match="fabric plan: cannot"):
        plan(path=str(tmp_path / "file/plan.svg"))


def test_hosts_of_no_plan():
    with pytest.raises(AnsibleActionFail, match="fabric plan: no hosts; the group ring"):
        plan(hosts=[])
