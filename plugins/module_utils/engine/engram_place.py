# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an engine reads its rank's Engram rows, and what tells it so: vLLM with the DSV41 patches, SGLang with the Spark overlay.

Both take a directory; vLLM needs none where the shards are whole. A directory of rows is no part of a revision, so a container sees
it below the checkpoint's mount, or gets a mount of its own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .profile import Profile

PLACEMENTS = ("directory", "shard", "full")
RULES = ("vllm", "sglang")
#: Where a container sees a directory of rows that is not below the checkpoint's (source: tonyd2wild, its launchers).
MOUNT = "/engram-local"
#: Directory of rows below that of the checkpoint, unless another one is named.
DEFAULT = "engram"
_SWITCH = "DSV41_ENGRAM_DISK"


def completed(given: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The key ``engram`` of a profile with its defaults; empty where the profile says nothing of Engram rows."""
    return {"placement": "full", "rule": engine, "directory": "", **given} if given else {}


def rule_of(profile: Profile) -> str:
    """How the engine splits the tables."""
    return str(profile.engram.get("rule") or profile.engine)


def directory_of(profile: Profile, model_root: str) -> str:
    """Directory of rows on the node, empty with another placement."""
    if profile.engram.get("placement") != "directory":
        return ""
    return posixpath.normpath(profile.engram.get("directory") or posixpath.join(model_root, DEFAULT))


def seen_at(directory: str, model_root: str, inside: str, contained: bool = True) -> str:
    """That directory as the engine sees it. inside: where it sees the checkpoint. contained: whether it runs in a container."""
    if not directory or not contained:
        return directory
    below = PurePosixPath(directory)
    if below.is_relative_to(model_root):
        return posixpath.join(inside, str(below.relative_to(model_root)))
    return MOUNT


def variables(profile: Profile) -> dict[str, str]:
    """What tells the engine; {engram} stands for the directory that it reads rows from."""
    if not profile.engram:
        return {}
    if profile.engine == "sglang":
        return {"SPARK_ENGRAM_DIR": "{engram}", "SPARK_ENGRAM_ROWS": "{engram_rows}"}
    return {} if profile.engram["placement"] == "full" else {_SWITCH: "1", "DSV41_ENGRAM_DIR": "{engram}"}


def problems(profile: Profile) -> Iterator[str]:
    """What contradicts itself: rows that the engine would look for elsewhere, or by another rule."""
    if not profile.engram:
        return
    placement = profile.engram["placement"]
    if profile.engine == "vllm" and profile.engram["rule"] != "vllm":
        yield f"engram.rule is {profile.engram['rule']}, vLLM splits the tables by vllm alone and reads holes as zeros. Cure: leave it out"
    told = variables(profile)
    for name in ("DSV41_ENGRAM_DIR", "SPARK_ENGRAM_DIR", "SPARK_ENGRAM_ROWS", _SWITCH):
        if name not in profile.env or (name == _SWITCH and name not in told):
            continue
        found = profile.env[name]
        # In a revision both names are of the same directory.
        same = {told.get(name), "{model}" if told.get(name) == "{engram}" and placement != "directory" else None}
        if found not in same:
            yield (
                f"env has {name}={found}, engram.placement {placement} gives {told.get(name, 'none')}: the engine would read rows elsewhere, "
                "and holes as zeros. Cure: leave it out, or set engram"
            )
