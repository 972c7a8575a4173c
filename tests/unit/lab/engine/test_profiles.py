# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in refuses flags that it does not know, as vLLM does: the command line of every vLLM profile has to pass it."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS
from lab.engine.standin import options

VLLM = sorted(name for name, group in GROUPS.items() if group.read().get("engine", "vllm") == "vllm")


@pytest.mark.parametrize("name", VLLM)
def test_the_command_line_of_every_rank_parses_and_does_not_contradict_itself(name):
    _profile, specs = GROUPS[name].specs()
    for spec in specs:
        chosen = options.parse(spec.argv[1:])
        assert options.problems(chosen) == []
        assert (chosen.node_rank, chosen.nnodes, chosen.headless) == (spec.rank, spec.size, spec.rank > 0)
        assert chosen.model_tag == spec.model["engine_path"]


def test_a_flag_that_vllm_does_not_know_ends_it():
    _profile, specs = GROUPS["lab"].specs()
    with pytest.raises(SystemExit):
        options.parse([*specs[0].argv[1:], "--nonsense-flag"])
