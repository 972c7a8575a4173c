# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks as JUnit XML, for what shows test results; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .checks import line
from .markup import Html, el


def junit(title: str, created: str, checks: Sequence[Mapping[str, Any]], warnings_fail: bool = False) -> str:
    """A suite a node and a case a check. Failed errors are failures, warnings only with warnings_fail; else they are told."""
    nodes = sorted({str(check["node"]) for check in checks})
    suites = [
        _suite(node, created, [check for check in checks if check["node"] == node], warnings_fail) for node in nodes
    ]
    bad = sum(_fails(check, warnings_fail) for check in checks)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{head}{el('testsuites', *suites, name=title, tests=len(checks), failures=bad, errors=0)}\n"


def _fails(check: Mapping[str, Any], warnings_fail: bool) -> bool:
    return not check["ok"] and (check["severity"] == "error" or (warnings_fail and check["severity"] == "warning"))


def _suite(node: str, created: str, checks: Sequence[Mapping[str, Any]], warnings_fail: bool) -> Html:
    bad = sum(_fails(check, warnings_fail) for check in checks)
    cases = [_case(check, warnings_fail) for check in checks]
    # JUnit's timestamps carry no zone: they are UTC here.
    return el(
        "testsuite", *cases, name=node, tests=len(checks), failures=bad, errors=0, skipped=0, timestamp=created[:19]
    )


def _case(check: Mapping[str, Any], warnings_fail: bool) -> Html:
    said: list[Html] = []
    if _fails(check, warnings_fail):
        said.append(
            el(
                "failure",
                line(check),
                message=f"found {check['found']}, expected {check['expected']}",
                type=check["severity"],
            )
        )
    elif not check["ok"]:
        said.append(el("system-out", line(check)))
    classname = f"{check['node']}.{check['id'].partition('.')[0]}"
    return el("testcase", *said, classname=classname, name=f"{check['id']}: {check['expected']}")
