# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads kernel modules and limits of a machine, and applies an RdmaPlan to it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from ..host import HostError, read_text, run, write_text
from .rdma_settings import RdmaPlan, Wanted, builtin_names, files, memlock_bytes, to_load


def current_files(etc_root: Path, wanted: Wanted) -> dict[str, str]:
    """The texts of our files, empty for an absent one."""
    return {name: read_text(etc_root / name) or "" for name in files(wanted)}


def missing_modules(wanted: Wanted, sys_root: Path, modules_root: Path) -> tuple[str, ...]:
    """Wanted modules that would have to be loaded now."""
    if not wanted.load:
        return ()
    loaded = [path.name for path in (sys_root / "module").glob("*")]
    builtin = read_text(modules_root / os.uname().release / "modules.builtin") or ""
    return to_load(wanted.modules, loaded, builtin_names(builtin))


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


def apply(planned: RdmaPlan) -> None:
    """Write the files, then load the modules; every module is tried before HostError names those that failed."""
    for change in planned.files:
        if change.after:
            write_text(change.what, change.after)
        else:
            Path(change.what).unlink(missing_ok=True)
    done = [run(["modprobe", name], check=False) for name in planned.modules]
    failed = [one.message() for one in done if one.rc != 0]
    if failed:
        raise HostError(f"the files are written, but modules did not load: {'; '.join(failed)}")
