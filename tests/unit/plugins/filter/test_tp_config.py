# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gb10.ring.plugins.filter.tp_config import FilterModule

CONFIG = json.loads((Path(__file__).parents[2] / "fixtures/checkpoint/config-exl3.json").read_text(encoding="utf-8"))
tp_config = FilterModule().filters()["tp_config"]


def test_three_ranks():
    assert tp_config(CONFIG, 3)["virtual_heads_from"] == {"num_attention_heads": 64, "o_groups": 8}


@pytest.mark.parametrize(
    ("config", "tp", "text"), [("{}", 3, "the input is a str"), ({}, 3, "no text_config"), (CONFIG, 0, "size 0")]
)
def test_errors_name_the_filter(config, tp, text):
    with pytest.raises(AnsibleFilterError, match=rf"gb10\.ring\.tp_config: .*{text}"):
        tp_config(config, tp)
