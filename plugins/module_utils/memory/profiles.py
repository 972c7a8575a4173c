# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named sets of kernel memory settings, with what is known of each value. Sources disagree, so there is more than one; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """value: wanted one. default: of DGX OS 7 (kernel 6.17.0-1031-nvidia). evidence: who uses it, and what was seen."""

    key: str
    value: str
    default: str
    evidence: str


@dataclass(frozen=True)
class Profile:
    """always: in force from boot on. serving: only while the engine serves, since they lower MemAvailable. thp: transparent huge pages."""

    name: str
    purpose: str
    always: tuple[Setting, ...]
    serving: tuple[Setting, ...]
    thp: str


_ALWAYS = (
    Setting("vm.swappiness", "10", "60", "ubuntu-gb10 and dgx-spark-setup-guide use it; of no effect without swap"),
    Setting(
        "vm.overcommit_memory",
        "0",
        "0",
        "1 was found on the node that needed a power cycle (LLMKube, three Sparks in a ring)",
    ),
    Setting(
        "vm.watermark_boost_factor",
        "0",
        "15000",
        "boosting hides up to 0.87 GiB of MemAvailable from start-up checks (spark-ds41f)",
    ),
    Setting(
        "vm.compaction_proactiveness",
        "0",
        "20",
        "node preparation of DeepSeek-V4.1-Flash-EXL3-DGX-Spark warns of other values",
    ),
)

_RESERVE = (
    Setting(
        "vm.min_free_kbytes",
        "1048576",
        "45056",
        "a 450K-token prefill took MemFree to 1.0 GiB at 45056 and left 8 GiB and more with it (LLMKube lab page); "
        "raised before the start it makes the engine's memory check fail (GB10 unified memory field report)",
    ),
    Setting(
        "vm.watermark_scale_factor",
        "200",
        "10",
        "goes with the reserve (LLMKube, tonyd2wild docs/RECIPE.md); one team measured 20 to 22 % less throughput at 5 to 6 streams, "
        "because Engram rows lose page cache, and keeps the default",
    ),
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("conservative", "what no source speaks against; the kernel's own reserve", _ALWAYS, (), "madvise"),
        Profile("tuned", "a reserve of 1 GiB while serving, for long prefills", _ALWAYS, _RESERVE, "madvise"),
    )
}

NONE = "none"
NAMES = (*PROFILES, NONE)


def always(name: str) -> dict[str, str]:
    """Settings of a profile that are in force from boot on; none of the profile none."""
    return {setting.key: setting.value for setting in PROFILES[name].always} if name != NONE else {}


def serving(name: str) -> dict[str, str]:
    """Settings of a profile that are in force only while the engine serves."""
    return {setting.key: setting.value for setting in PROFILES[name].serving} if name != NONE else {}


def thp(name: str) -> str:
    """The profile's mode of transparent huge pages; empty leaves it alone."""
    return PROFILES[name].thp if name != NONE else ""
