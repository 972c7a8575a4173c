# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.gather import RESULTS, RoleError, reason, site_checks
from ansible_collections.gb10.ring.tests.unit.fixtures import report_site

ALL = list(RESULTS)


def result(node, id="rdma.state", ok=True, **more):
    return {"checks": [Check(id, node, ok, "x", "y").to_dict()], **more}


def missing(checks):
    return [(check["node"], check["found"]) for check in checks if check["id"] == "verify.looked"]


def test_every_result_of_a_role_is_gathered_in_the_order_of_hosts_and_roles():
    hostvars = report_site.verified()
    hostvars["spark2"]["memory_checks"] = result("spark2", "memory.swap")
    hostvars["spark2"]["memory_guard_checks"] = result("spark2", "memory.guard")
    hostvars = {name: {"memory_checks": result(name, "memory.swap"), **hostvars[name]} for name in hostvars}
    checks = site_checks(hostvars, ["spark2", "spark1"], ["memory", "preflight"])
    assert [(check["node"], check["id"]) for check in checks] == [
        ("spark2", "memory.swap"),
        ("spark2", "memory.guard"),
        ("spark2", "preflight.clock"),
        ("spark1", "memory.swap"),
        ("spark1", "preflight.clock"),
    ]


@pytest.mark.parametrize(
    ("spark2", "expected"),
    [
        ({"rdma_checks": result("spark2")}, []),
        ({}, [("spark2", "the checks of role rdma ended: the node gave no answer")]),
        (
            {"rdma_checks": {"failed": True, "msg": "x"}, "verify_failed": {"rdma": {"msg": "spark2: no ip command"}}},
            [("spark2", "the checks of role rdma ended: spark2: no ip command")],
        ),
        # its first task had a result, a later one ended it
        (
            {"rdma_checks": result("spark2"), "verify_failed": {"rdma": {"msg": "cannot read /x"}}},
            [("spark2", "the checks of role rdma ended: cannot read /x")],
        ),
        ({"rdma_checks": {"skipped": True, "changed": False}}, []),
        ({"preflight_checks": result("spark2", "preflight.reachable", ok=False, facts={})}, []),
    ],
)
def test_a_host_without_a_result_that_others_have_is_a_failed_check(spark2, expected):
    looked = {"preflight_checks": result("spark1", "preflight.os", facts={"kernel": "x"})}
    spark1 = {"rdma_checks": result("spark1"), **(looked if "preflight_checks" in spark2 else {})}
    hostvars = {"spark1": spark1, "spark2": spark2}
    checks = site_checks(hostvars, hostvars, ALL)
    assert missing(checks) == expected
    assert all(check["cure"] and check["severity"] == "error" for check in checks if check["id"] == "verify.looked")


def test_a_role_that_ended_on_every_host_is_told_of_every_host():
    hostvars = {name: {"verify_failed": {"engine": {"msg": "broken"}}} for name in ("a", "b")}
    assert missing(site_checks(hostvars, hostvars, ALL)) == [
        (name, "the checks of role engine ended: broken") for name in ("a", "b")
    ]


def test_roles_that_were_not_run_at_all_are_no_failure():
    hostvars = {"a": {"rdma_checks": result("a")}, "b": {"rdma_checks": result("b")}}
    assert [check["id"] for check in site_checks(hostvars, hostvars, ALL)] == ["rdma.state"] * 2


def test_an_unknown_role_is_named():
    with pytest.raises(RoleError, match="no checks are known of fabirc; expected some of preflight, fabric"):
        site_checks({}, [], ["fabirc"])


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, "the node gave no answer"),
        ({"failed": True}, "the task says nothing"),
        ({"msg": "cannot read /x"}, "cannot read /x"),
        (
            {"msg": "MODULE FAILURE", "module_stderr": "Traceback\n  x\nKeyError: 'a'\n"},
            "MODULE FAILURE: KeyError: 'a'",
        ),
        (
            {"msg": "no JSON", "module_stderr": "", "module_stdout": "python3: not found\n"},
            "no JSON: python3: not found",
        ),
    ],
)
def test_the_reason_is_what_the_task_said(result, expected):
    assert reason(result) == expected
