# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance's state on disk, changed by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .base import locked
from .cabling import State
from .instance import Instance, LabError


def exists(instance: Instance) -> bool:
    return instance.state_file.exists()


def load(instance: Instance) -> State:
    """The state of a lab that runs. Raises LabError when there is none."""
    try:
        return State.from_json(instance.state_file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LabError(
            f"instance {instance.name!r} is not running: `lab/ctl --instance {instance.name} up` starts it"
        ) from error


def save(instance: Instance, state: State) -> None:
    """Replace the state; a reader sees the old one or the new one."""
    fresh = instance.state_file.with_suffix(".new")
    fresh.write_text(state.to_json(), encoding="utf-8")
    os.replace(fresh, instance.state_file)


@contextmanager
def changing(instance: Instance) -> Iterator[None]:
    """Hold the instance for the block; the lock lies beside its folder, which `down` removes."""
    with locked(instance.shared / f"{instance.name}.lock"):
        yield
