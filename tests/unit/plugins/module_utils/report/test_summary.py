from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.plan import Change, Plan
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check, errors, failed, line
from ansible_collections.gb10.ring.plugins.module_utils.report.summary import (
    collected,
    site_rows,
    table,
    verdict,
)


def check(node="spark1", id="fabric.mtu", ok=True, severity="error", cure="set it"):
    return Check(id, node, ok, "1500 bytes", "9000 bytes", cure, severity).to_dict()


GOOD = check()
BAD = check(node="spark2", ok=False)
WARNING = check(node="spark1", id="memory.sysctl", ok=False, severity="warning")


@pytest.mark.parametrize(
    ("checks", "expected"),
    [([], []), ([GOOD], []), ([WARNING, GOOD, BAD], [BAD, WARNING])],
)
def test_failed_puts_the_worst_first(checks, expected):
    assert failed(checks) == expected


def test_errors_leaves_warnings_out():
    assert errors([WARNING, BAD]) == [BAD]


def test_line_names_node_found_expected_and_cure():
    assert line(BAD) == "spark2: fabric.mtu error: found 1500 bytes, expected 9000 bytes. Cure: set it"


def test_verdict_holds_every_failure():
    text = verdict("fabric", [GOOD, WARNING, BAD])
    assert text.splitlines()[0] == "fabric: 2 of 3 checks failed"
    assert [row[2:8] for row in text.splitlines()[1:]] == ["spark2", "spark1"]
    assert verdict("fabric", [GOOD]) == "fabric: all 1 checks hold"


def test_verdict_of_what_is_only_to_know_is_no_failure():
    note = check(node="spark3", id="fabric.cabling", ok=False, severity="info", cure="")
    assert verdict("cables", [GOOD, note]).splitlines() == ["cables: all 1 checks hold, 1 to know", f"- {line(note)}"]
    assert verdict("cables", [BAD, note]).splitlines()[0] == "cables: 1 of 1 checks failed, 1 to know"


@pytest.mark.parametrize("names", ["fabric_checks", ["fabric_checks", "absent_checks"]])
def test_collected_keeps_host_order_and_skips_hosts_without_it(names):
    hostvars = {"b": {"fabric_checks": {"checks": [BAD]}}, "a": {"fabric_checks": {"checks": [GOOD]}}, "c": {}}
    assert collected(hostvars, ["a", "b", "c"], names) == [GOOD, BAD]


def test_table_lines_up_and_puts_numbers_right():
    text = table([{"node": "spark1", "legs": 4}, {"node": "s", "legs": 12}])
    assert text.splitlines() == ["node    legs", "spark1     4", "s         12"]
    assert table([]) == ""


def test_site_rows_say_what_was_not_checked():
    hostvars = {
        "spark1": {
            "fabric_checks": {"legs_up": 4, "legs_total": 4, "checks": []},
            "checkpoint_checks": {
                "checkpoint": {
                    "current": "ab12",
                    "revisions": [
                        {"revision": "cd34", "files": 3, "bytes": 10},
                        {"revision": "ab12", "files": 54, "bytes": 314572800},
                    ],
                }
            },
            "engine_checks": {"checks": [check(id="engine.health")]},
        },
        "spark2": {"engine_checks": {"checks": [check(id="engine.unit", ok=False)]}},
        "spark3": {},
    }
    rows = site_rows(hostvars, list(hostvars))
    assert rows[0] == {
        "node": "spark1",
        "legs up": "4 of 4",
        "revision": "ab12",
        "files": "54",
        "bytes": "314,572,800",
        "engine": "healthy",
    }
    assert rows[1]["engine"] == "failing: engine.unit 1500 bytes"
    assert rows[2]["legs up"] == rows[2]["engine"] == "not checked"


def test_plan_diff_names_what_and_why():
    plan = Plan((Change("/etc/a", "", "x", "absent"),))
    assert plan.changed
    assert plan.diff() == [{"before_header": "/etc/a", "after_header": "/etc/a (absent)", "before": "", "after": "x\n"}]
    assert plan.reasons() == ["/etc/a: absent"]
    assert not Plan().changed
