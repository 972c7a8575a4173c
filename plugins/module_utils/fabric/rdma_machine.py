# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads kernel modules and limits of a machine, and applies an RdmaPlan to it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import before, made
from ..host import HostError, read_text, replace_text, run, write_text
from .rdma_settings import RdmaPlan, Wanted, builtin_names, depended_on, files, memlock_bytes, merged, to_load


def current_files(etc_root: Path, wanted: Wanted) -> dict[str, str]:
    """The texts of our files, empty for an absent one."""
    return {name: read_text(etc_root / name) or "" for name in files(wanted)}


def missing_modules(wanted: Wanted, sys_root: Path, modules_root: Path) -> tuple[str, ...]:
    """Wanted modules that would have to be loaded now."""
    if not wanted.load:
        return ()
    loaded = loaded_modules(sys_root)
    builtin = read_text(modules_root / os.uname().release / "modules.builtin") or ""
    return to_load(wanted.modules, loaded, builtin_names(builtin))


def loaded_modules(sys_root: Path) -> list[str]:
    """Modules that the kernel shows, those that are built in and have parameters too."""
    return [path.name for path in (sys_root / "module").glob("*")]


def load_record(path: Path) -> dict[str, Any]:
    """What was replaced so far. Raises HostError."""
    try:
        return before.parse(read_text(path), "rdma_settings")
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def unloadable(modules: Iterable[str]) -> list[str]:
    """A message for each module that modprobe does not know; nothing is loaded."""
    tried = [(name, run(["modprobe", "--dry-run", name], check=False)) for name in modules]
    return [
        f"kernel module {name} does not exist for kernel {os.uname().release} ({done.message()}); install the kernel's module package "
        "or take it out of rdma_modules"
        for name, done in tried
        if done.rc != 0
    ]


def hard_memlock() -> str:
    """This process's hard limit, as a person reads it."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return "unlimited" if hard == resource.RLIM_INFINITY else f"{hard // 1024} KiB"


def memlock_allowed(memlock: str) -> bool:
    """Whether root may set this limit. Tried on this short-lived process, because a user namespace shows the capability without having it."""
    if not memlock:
        return True
    wanted, hard = memlock_bytes(memlock), resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard == resource.RLIM_INFINITY or (wanted is not None and wanted <= hard):
        return True
    limit = resource.RLIM_INFINITY if wanted is None else wanted
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    except (OSError, ValueError):
        return False
    return True


def _brought(modules: Iterable[str], sys_root: Path) -> tuple[str, ...]:
    loaded = loaded_modules(sys_root)
    shown = [run(["modprobe", "--show-depends", name], check=False).stdout for name in modules]
    return tuple(dict.fromkeys(name for text in shown for name in depended_on(text, loaded)))


def apply(planned: RdmaPlan, record: Path, sys_root: Path) -> None:
    """The record first, then the files, then the modules; every module is tried before HostError names those that failed."""
    if not planned.plan.changed:
        return
    planned = replace(planned, brought=_brought(planned.modules, sys_root))
    write_text(record, before.render(merged(load_record(record), planned)))
    made.note([change.what for change in planned.files if change.after], record.parent)
    _write(planned)
    done = [run(["modprobe", name], check=False) for name in planned.modules]
    failed = [one.message() for one in done if one.rc != 0]
    if failed:
        raise HostError(f"the files are written, but modules did not load: {'; '.join(failed)}")


def take_back(planned: RdmaPlan, record: Path) -> list[str]:
    """The way back, the record last. A note for each module that is in use: it is not loaded at the next boot."""
    _write(planned)
    used = [name for name in planned.unload if run(["modprobe", "-r", name], check=False).rc != 0]
    # One may have been used by another of these; where it went with that one, this is no error.
    done = [(name, run(["modprobe", "-r", name], check=False)) for name in used]
    record.unlink(missing_ok=True)
    made.tidy(record.parent, ())
    return [
        f"kernel module {name} stays loaded until the next boot ({one.message()})" for name, one in done if one.rc != 0
    ]


def _write(planned: RdmaPlan) -> None:
    for change in planned.files:
        replace_text(change.what, change.after)
