# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles" / "engine" / "tasks" / "benchmark.yml"


def test_figures_are_shown_before_files_are_written():
    """A benchmark takes long; files that cannot be written fail the run, and hide nothing of it."""
    block = next(task["block"] for task in yaml.safe_load(TASKS.read_text(encoding="utf-8")) if "block" in task)
    assert ["ansible.builtin.debug" in task for task in block] == [True, False, False, False]
