from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory import profiles
from ansible_collections.gb10.ring.plugins.module_utils.memory.settings import Places, State, Wanted, decide

DOCS = Path(__file__).parents[5] / "docs/memory.md"
SETTINGS = [
    (profile.name, setting) for profile in profiles.PROFILES.values() for setting in (*profile.always, *profile.serving)
]


@pytest.mark.parametrize(("profile", "setting"), SETTINGS, ids=[f"{name}-{one.key}" for name, one in SETTINGS])
def test_every_value_has_evidence_that_the_documentation_shows(profile, setting):
    (row,) = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{setting.key}` |")]
    assert f"| {setting.default} |" in row
    assert f" {setting.value} " in row
    assert len(setting.evidence) > 20


@pytest.mark.parametrize("name", profiles.NAMES)
def test_what_lowers_the_available_memory_is_never_set_before_the_engine_serves(name):
    assert not {"vm.min_free_kbytes", "vm.watermark_scale_factor"} & set(profiles.always(name))
    assert not set(profiles.always(name)) & set(profiles.serving(name))


def test_the_profiles():
    assert profiles.serving("conservative") == {}
    assert profiles.serving("tuned") == {"vm.min_free_kbytes": "1048576", "vm.watermark_scale_factor": "200"}
    assert profiles.always("tuned") == profiles.always("conservative")
    assert (profiles.always("none"), profiles.serving("none"), profiles.thp("none")) == ({}, {}, "")


def test_a_setting_in_both_phases_is_a_problem():
    state = State({"vm.min_free_kbytes": "45056"})
    wanted = Wanted({"vm.min_free_kbytes": "1"}, serving={"vm.min_free_kbytes": "2"})
    assert decide(state, wanted, Places()).problems == (
        "vm.min_free_kbytes: wanted both always and while serving; leave it in one of them",
    )
