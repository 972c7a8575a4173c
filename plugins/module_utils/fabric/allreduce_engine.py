# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The all-reduce where the engine runs, and with its settings: command and NCCL's variables from an engine profile; pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any

PYTHON = "python3"
_SETTINGS = re.compile(r"(TORCH_)?NCCL_\w+\Z")
# The ranks meet over the management network whatever the engine does, and the checks read the log.
_OWN = ("NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


class NoCommandError(ValueError):
    """The profile names nothing that a node could run; the text is the message for the user."""


def command(profile: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Words that run the Python of the serving image, or of the serving virtual environment. Raises NoCommandError.

    profile: complete; empty: none is known, so the node's own Python. record: the rank's engine.json, empty where none is.
    """
    if not profile:
        return [PYTHON]
    renderer = profile["renderer"]
    if renderer == "venv":
        return [_python(profile)]
    if renderer not in ("docker", "podman"):
        raise NoCommandError(
            f"the ranks of profile {profile['name']} are pods ({renderer}), which a node cannot run by itself: "
            "set fabric_allreduce_command to a command that runs a Python with torch on the node"
        )
    gpus = profile["gpus"]
    return [
        *(renderer, "run", "--rm", "-i", "--pull", "never", "--log-driver", "none"),
        *("--network", "host", "--ipc", "host", "--ulimit", "memlock=-1:-1"),
        *("--security-opt", "no-new-privileges", "--cap-drop", "ALL"),  # as the engine
        *(_gpus(renderer, gpus) if gpus else ()),
        *(word for capability in profile["capabilities"] for word in ("--cap-add", capability)),
        *(word for device in profile["devices"] for word in ("--device", device)),
        *("--entrypoint", "sh", _image(profile, record)),
        # A shell stays the container's first process: there the kernel's alarm, with which the program ends itself, does nothing.
        *("-c", _started(_python(profile)), "allreduce"),
    ]


def _image(profile: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The image's id where it is known: a node that was given the image by a neighbour does not know it by its name and digest."""
    placed = record.get("container") or {}
    known = placed.get("image") if placed.get("reference") == profile["image"] else ""
    return str(profile["image_id"] or known or profile["image"])


def _started(python: str) -> str:
    """What the shell runs. A program of an image may lie apart from its interpreter."""
    if python == PYTHON:
        return f'{PYTHON} "$@"; exit $?'
    return f'python={shlex.quote(python)}; test -x "$python" || python={PYTHON}; "$python" "$@"; exit $?'


def _gpus(renderer: str, gpus: str) -> tuple[str, str]:
    return ("--gpus", gpus) if renderer == "docker" else ("--device", f"nvidia.com/gpu={gpus}")


def _python(profile: Mapping[str, Any]) -> str:
    """The interpreter beside the engine's program; of a program found by its name, the one found by name."""
    return posixpath.join(posixpath.dirname(profile["executable"]), PYTHON)


def settings(profile: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
    """NCCL's variables of the profile. fields: what may stand in braces in a value. An empty value takes the fabric's variable away."""
    given = {name: str(value) for name, value in (profile.get("env") or {}).items()}
    return {
        name: re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), value)
        for name, value in sorted(given.items())
        if _SETTINGS.match(name) and name not in _OWN
    }
