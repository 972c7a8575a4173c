# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch of the group is judged by everything that a look at the engine finds of the revision."""

from __future__ import annotations

import re
from pathlib import Path

ROLES = Path(__file__).resolve().parents[3] / "roles"
#: Of the programs beside the engine, which a revision has no part in.
BESIDE = {"engine_group_checks", "engine_watch_checks"}


def test_a_revision_is_accepted_by_all_checks_of_the_engine() -> None:
    looks = [(ROLES / f"engine/tasks/{name}.yml").read_text() for name in ("verify", "acceptance")]
    registered = set(re.findall(r"register: (engine_\w*checks)", "\n".join(looks)))
    accept = (ROLES / "checkpoint/tasks/accept.yml").read_text()
    assert registered > BESIDE
    assert set(re.findall(r"'(engine_\w*checks)'", accept)) == registered - BESIDE
