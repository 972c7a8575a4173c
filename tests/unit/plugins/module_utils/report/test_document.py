# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.document import (
    Earlier,
    Report,
    changes,
    counts,
    document,
    file_name,
    parse_earlier,
    result,
    summary_of,
    surplus,
)
from ansible_collections.gb10.ring.plugins.module_utils.report.gather import RESULTS, site_checks
from ansible_collections.gb10.ring.plugins.module_utils.report.site import site
from ansible_collections.gb10.ring.tests.unit.fixtures import report_site

SCHEMA = json.loads((Path(__file__).parents[5] / "docs" / "report.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def check(node="spark1", id="fabric.mtu", ok=False, severity="error"):
    return Check(id, node, ok, "1500 bytes", "9000 bytes", "set it", severity).to_dict()


def whole(shape, size):
    hostvars = report_site.verified(shape, size)
    checks = [*site_checks(hostvars, hostvars, list(RESULTS)), check()]
    return Report("verify", report_site.CREATED, checks, site(hostvars, hostvars), report_site.benchmark())


@pytest.mark.parametrize(("shape", "size"), [("ring", 3), ("ring", 4), ("pair", 2), ("switch", 3)])
def test_a_whole_report_is_as_the_schema_says(shape, size):
    held = json.loads(document(whole(shape, size)))
    VALIDATOR.validate(held)
    assert held["result"] == "failures"
    assert held["checks"][0] == check()
    assert held["counts"]["errors"] == 1
    assert len(held["site"]["legs"]) == (2 * size if shape == "ring" else 2)


@pytest.mark.parametrize("hostvars", [report_site.planned(), {"a": {}, "b": {"fabric_checks": {"failed": True}}}])
def test_a_report_of_nothing_is_too(hostvars):
    held = json.loads(document(Report("verify", report_site.CREATED, [], site(hostvars, hostvars))))
    VALIDATOR.validate(held)
    assert held["ok"] is True
    assert held["result"] == "ok"
    assert [node["disk"] for node in held["site"]["nodes"]] == [None] * len(hostvars)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda held: held["checks"][0].pop("cure"), "'cure' is a required property"),
        (lambda held: held["checks"][0].update(severity="fatal"), "'fatal' is not one of"),
        (lambda held: held.update(schema=1), "2 was expected"),
        (lambda held: held["site"]["legs"][0]["ends"][0].update(gbps="fast"), "'fast' is not of type"),
        (lambda held: held.update(more=1), "Additional properties"),
    ],
)
def test_the_schema_refuses_what_is_no_report(change, what):
    held = json.loads(document(whole("ring", 3)))
    change(held)
    said = [error.message for error in VALIDATOR.iter_errors(held)]
    said += [inner.message for error in VALIDATOR.iter_errors(held) for inner in error.context or ()]
    assert any(what in message for message in said), said


@pytest.mark.parametrize(
    ("checks", "numbers", "worst"),
    [
        ([], (0, 0, 0, 0, 0), "ok"),
        ([check(ok=True), check(severity="info")], (2, 1, 0, 0, 1), "ok"),
        ([check(ok=True), check(severity="warning"), check(severity="info")], (3, 1, 0, 1, 1), "warnings"),
        ([check(), check(severity="warning")], (2, 0, 1, 1, 0), "failures"),
    ],
)
def test_counts_and_the_worst(checks, numbers, worst):
    assert tuple(counts(checks).values()) == numbers
    assert result(counts(checks)) == worst


def test_earlier_reports_come_oldest_first_without_what_is_none():
    late = Report("verify", "2026-11-30T03:00:00+00:00", [check(), check(severity="info")])
    early = Report("verify", "2026-11-29T03:00:00+00:00", [check(ok=True)])
    texts = [document(late), "{", "[]", '{"schema": 1, "ok": true}', '{"schema": 2, "result": "?"}', document(early)]
    assert parse_earlier(texts) == [summary_of(early), summary_of(late)]
    assert summary_of(late) == Earlier(late.created, "failures", late.counts, {("spark1", "fabric.mtu"): "failed"})


KEY = ("spark1", "engine.unit")


def looked(*states):
    """A report with one check a state, all of one node and id, beside one of another node that holds."""
    made = {"ok": (True, "error"), "note": (False, "info"), "warning": (False, "warning"), "error": (False, "error")}
    own = [check(id="engine.unit", ok=made[state][0], severity=made[state][1]) for state in states]
    return parse_earlier([document(Report("verify", "x", [check("spark2", "engine.unit", ok=True), *own]))])[0]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (("ok",), ("error",), "failed"),
        (("note",), ("warning",), "failed"),
        (("ok", "ok"), ("ok", "error"), "failed"),
        (("error",), ("ok",), "held"),
        (("ok", "error"), ("ok", "ok"), "held"),
        (("warning",), ("ok",), "held"),
        (("error",), (), "failed_gone"),  # a part alone, a node that is gone
        ((), ("error",), "failed_new"),
        (("error", "error"), ("ok", "error"), ""),
        (("error",), ("warning",), ""),
        (("error",), ("note",), ""),  # it neither holds nor fails
        (("ok",), (), ""),
        ((), ("ok",), ""),
        (("ok",), ("note",), ""),
        ((), (), ""),
    ],
)
def test_what_has_changed_is_what_both_looked_at(before, now, change):
    found = asdict(changes(looked(*now), looked(*before)))
    assert {name: keys for name, keys in found.items() if keys} == ({change: (KEY,)} if change else {})


def test_the_history_keeps_the_newest_of_its_own():
    own = [file_name("verify", f"2026-11-{day:02d}T03:00:00+00:00") for day in (1, 2, 3)]
    assert own[0] == "verify-20261101T030000Z.json"
    others = ["verify-notes.json", "verify-2026Z.json", "fabric-20261101T030000Z.json", "verify-abcdefgh-000000Z.json"]
    assert surplus([*reversed(own), *others], "verify", keep=2) == own[:1]
    assert surplus([*own, *others], "verify", keep=0) == own
    assert surplus(own, "verify", keep=5) == []
    assert file_name("../x y", "2026-11-01T03:00:00+00:00") == "---x-y-20261101T030000Z.json"
