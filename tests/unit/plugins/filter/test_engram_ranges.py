# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.engram_ranges import FilterModule

GOLDEN = json.loads((Path(__file__).parents[2] / "fixtures/engram/golden-ranges.json").read_text())
engram_ranges = FilterModule().filters()["engram_ranges"]


def test_three_ranks():
    assert engram_ranges({"text_config": GOLDEN["config"]}, 3, "vllm") == GOLDEN["vllm_hash_head_split"]["3"]


def test_errors_are_ansibles_own():
    with pytest.raises(AnsibleFilterError, match="rule is 'other'"):
        engram_ranges(GOLDEN["config"], 3, "other")
