# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's profile decides where Engram rows lie, for the role that brings them and the role that tells the engine alike."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine.options import merged
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse
from ansible_collections.gb10.ring.tests.unit.fixtures.role_variables import computed

CHECKPOINT = ("checkpoint/defaults/main.yml",)
ENGINE = ("engine/defaults/main.yml", "engine/vars/main.yml")
ROOT = "/var/lib/gb10-ring/checkpoints/v41"
DIGEST = "x@sha256:" + "0" * 64
SITE = {"ring_size": 3, "ring_rank": 1, "checkpoint_prefix": "lab/v41"}
BASE = {"name": "x", "executable": "/bin/x", "served_model_name": "m", "tensor_parallel": 3}


def overrides(**engram):
    return {"engine_profile": "vllm-tp3-ring-exl3", "engine_overrides": {"engram": engram, "image": DIGEST}}


#: Variables of an inventory; what is brought by which rule, how and where; what the engine is told.
CASES = [
    ({"engine_profile": "lab"}, ("", "full", f"{ROOT}/engram"), {}),
    ({"engine_profile": "vllm-tp3-ring-exl3"}, ("vllm", "full", f"{ROOT}/engram"), ("vllm", "full", "")),
    (overrides(placement="shard"), ("vllm", "shard", f"{ROOT}/engram"), ("vllm", "shard", "")),
    (overrides(placement="directory"), ("vllm", "directory", f"{ROOT}/engram"), ("vllm", "directory", "")),
    (
        overrides(placement="directory", directory="/srv/rows"),
        ("vllm", "directory", "/srv/rows"),
        ("vllm", "directory", "/srv/rows"),
    ),
    (
        {"engine_profile": "lab", "checkpoint_engram_placement": "shard"},
        ("vllm", "shard", f"{ROOT}/engram"),
        ("vllm", "shard", ""),
    ),
    (
        {
            **overrides(placement="shard"),
            "checkpoint_engram_placement": "directory",
            "checkpoint_engram_directory": "/srv/rows",
        },
        ("vllm", "directory", "/srv/rows"),
        ("vllm", "directory", "/srv/rows"),
    ),
    (
        {**overrides(placement="shard"), "checkpoint_engram_placement": "full"},
        ("vllm", "full", f"{ROOT}/engram"),
        ("vllm", "full", ""),
    ),
]


@pytest.fixture(scope="module")
def found():
    """What each role makes of every case; neither sees the other one's defaults."""
    given = [{**SITE, **case[0]} for case in CASES]
    names = [f"checkpoint_engram_{name}" for name in ("rule", "placement", "directory")]
    told = computed(ENGINE, ["engine_settled"], given)
    return list(zip(computed(CHECKPOINT, names, given), (one["engine_settled"]["engram"] for one in told), strict=True))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_one_profile_decides_for_both_roles(found, number):
    _given, staged, told = CASES[number]
    brought, settled = found[number]
    assert tuple(brought.values()) == staged
    profile = parse(merged(BASE, {"engram": settled}), 3)
    names = ("rule", "placement", "directory")
    assert tuple(profile.engram[name] for name in names) == told if told else profile.engram == {}


def test_without_an_engine_the_role_says_nothing_of_rows():
    names = ["checkpoint_engine", "checkpoint_engram_rule", "checkpoint_engram_placement"]
    assert [tuple(one.values()) for one in computed(CHECKPOINT, names, [SITE])] == [({}, "", "full")]


def test_a_variable_that_says_otherwise_is_refused(found):
    _brought, settled = found[2]
    with pytest.raises(ProfileError, match="env has DSV41_ENGRAM_DIR=/x"):
        parse({**BASE, "engram": settled, "env": {"DSV41_ENGRAM_DIR": "/x"}}, 3)
