# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports to look at: of a healthy group, of one with four faults, and of one with a cut cable, each with ten earlier ones.

Run as a program it writes the pictures of docs/ (`make report-pictures`).
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.module_utils.report.document import Report, summary_of
from ansible_collections.gb10.ring.plugins.module_utils.report.gather import RESULTS, site_checks
from ansible_collections.gb10.ring.plugins.module_utils.report.page import page
from ansible_collections.gb10.ring.plugins.module_utils.report.site import site
from ansible_collections.gb10.ring.tests.browser.chromium import Browser
from ansible_collections.gb10.ring.tests.unit.fixtures import report_site

# Each a whole page, from its head to its last line.
PICTURES = (("report-1440.png", 1440, False), ("report-1440-dark.png", 1440, True), ("report-390.png", 390, False))


def healthy() -> Report:
    hostvars = report_site.verified()
    return Report(
        "verify",
        report_site.CREATED,
        site_checks(hostvars, hostvars, list(RESULTS)),
        site(hostvars, hostvars),
        report_site.benchmark(),
    )


def faulty() -> Report:
    """One cable end with a wrong MTU, one slow leg, one node with another kernel, one whose engine could not be looked at."""
    hostvars = report_site.verified()
    hostvars["spark2"]["fabric_checks"]["checks"] = report_site.fabric_checks(
        "spark2", hostvars["spark2"], {"enp1s0f0np0": 1500}, {"enP2p1s0f1np1": 14.2}
    )
    facts = hostvars["spark3"]["preflight_checks"]["facts"] = report_site.facts(kernel="6.17.0-1026-nvidia")
    odd = Check(
        "parity.kernel",
        "spark3",
        False,
        facts["kernel"],
        "6.17.0-1031-nvidia as on all others",
        "boot the same kernel on every node",
        "warning",
    )
    hostvars["spark3"]["preflight_checks"]["checks"].append(odd.to_dict())
    for name in RESULTS["engine"]:
        hostvars["spark3"].pop(name, None)
    hostvars["spark3"]["verify_failed"] = {
        "engine": {"msg": "cannot read /etc/gb10-ring/engine.json: Permission denied"}
    }
    checks = site_checks(hostvars, hostvars, list(RESULTS))
    return Report("verify", report_site.CREATED, checks, site(hostvars, hostvars), report_site.benchmark())


def cut() -> Report:
    """The cable between the first two nodes is cut; all else is well."""
    hostvars = report_site.verified()
    report_site.cut(hostvars, "spark1", "spark2")
    checks = site_checks(hostvars, hostvars, list(RESULTS))
    return Report("verify", report_site.CREATED, checks, site(hostvars, hostvars), report_site.benchmark())


SAMPLES = {"healthy": healthy, "faulty": faulty, "cut": cut}


def html(name: str) -> str:
    days = [(day, healthy() if day % 4 else faulty()) for day in range(20, 30)]
    earlier = [summary_of(replace(report, created=f"2026-11-{day}T03:00:00+00:00")) for day, report in days]
    return page(SAMPLES[name](), earlier)


def pictures(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "report.html").write_text(html("faulty"), encoding="utf-8")
        browser = Browser("chromium", Path(name) / "profile")
        try:
            for file, width, dark in PICTURES:
                browser.open((Path(name) / "report.html").as_uri(), width, dark)
                browser.picture(directory / file)
        finally:
            browser.close()


if __name__ == "__main__":
    pictures(Path(sys.argv[1]))
