# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.junit import junit

CHECKS = [
    Check("fabric.mtu", "spark1", True, "9000 bytes", "9000 bytes").to_dict(),
    Check("fabric.mtu", "spark2", False, "1500 <bytes>\x1b", "9000 bytes", 'run "it" again').to_dict(),
    Check("memory.swap", "spark2", False, "on", "off", "switch it off", "warning").to_dict(),
    Check("fabric.flaps", "spark1", False, "30", "20", "", "info").to_dict(),
]


@pytest.mark.parametrize(("warnings_fail", "failures"), [(False, 1), (True, 2)])
def test_a_suite_a_node_and_a_case_a_check(warnings_fail, failures):
    root = ElementTree.fromstring(junit("verify", "2026-11-30T03:00:00+00:00", CHECKS, warnings_fail))
    assert (root.get("name"), root.get("tests"), root.get("failures")) == ("verify", "4", str(failures))
    assert [(suite.get("name"), len(suite)) for suite in root] == [("spark1", 2), ("spark2", 2)]
    assert {suite.get("timestamp") for suite in root} == {"2026-11-30T03:00:00"}
    assert len(root.findall(".//failure")) == failures
    assert len(root.findall(".//system-out")) == 4 - 1 - failures
    worst = root.find(".//failure[@type='error']")
    assert worst is not None
    assert worst.get("message") == "found 1500 <bytes>\ufffd, expected 9000 bytes"
    assert "spark2: fabric.mtu error" in str(worst.text)
    assert 'Cure: run "it" again' in str(worst.text)


def test_cases_are_told_apart_by_what_was_expected():
    root = ElementTree.fromstring(junit("verify", "2026-11-30T03:00:00+00:00", CHECKS))
    case = root.find(".//testcase")
    assert case is not None
    assert (case.get("classname"), case.get("name")) == ("spark1.fabric", "fabric.mtu: 9000 bytes")
