# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules and locked-memory limits that RDMA needs: the owned files' texts and the plan; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import before
from ..plan import Change, Plan

MODULES_FILE = "modules-load.d/90-gb10-ring.conf"
LIMITS_FILE = "security/limits.d/90-gb10-ring.conf"
SYSTEMD_FILE = "systemd/system.conf.d/90-gb10-ring.conf"

PEERMEM = ("nvidia_peermem", "nv_peer_mem")

HEADER = "# Managed by gb10.ring (role rdma); changes are overwritten.\n"

_WHY = {
    MODULES_FILE: "loaded at every boot",
    LIMITS_FILE: "takes effect at the next login",
    SYSTEMD_FILE: "takes effect for services started after the next daemon-reload or boot",
}


@dataclass(frozen=True)
class Wanted:
    """modules: kernel modules. memlock: limits.conf value, unlimited or KiB. default_memlock: systemd value. Empty: no file."""

    modules: tuple[str, ...]
    memlock: str
    default_memlock: str
    load: bool = True


@dataclass(frozen=True)
class RdmaPlan:
    """The steps of one call; ``plan`` shows exactly these. unload: modules to take out again, last loaded first.

    brought: modules that loading will bring with it, in their order.
    """

    files: tuple[Change, ...] = ()
    modules: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        loads = [Change(f"kernel module {name}", "", "loaded", "modprobe") for name in self.modules]
        unloads = [Change(f"kernel module {name}", "loaded", "", "not loaded before gb10.ring") for name in self.unload]
        return Plan((*self.files, *loads, *unloads))


def option_problems(wanted: Wanted) -> list[str]:
    """What is wrong with the options, a message each."""
    bad = [f"modules: {name!r} is no module name" for name in wanted.modules if not re.fullmatch(r"[\w-]+", name)]
    bad += [
        f"modules: {name} is not supported on GB10 (GPUDirect RDMA needs memory of a separate GPU); take it out"
        for name in wanted.modules
        if _same(name) in PEERMEM
    ]
    if not re.fullmatch(r"unlimited|\d+|", wanted.memlock):
        bad.append(f"memlock: {wanted.memlock!r}; unlimited, a number of KiB, or empty for no file is allowed")
    if not re.fullmatch(r"(infinity|\d+[KMGT]?)(:(infinity|\d+[KMGT]?))?|", wanted.default_memlock):
        bad.append(
            f"default_memlock: {wanted.default_memlock!r}; infinity, bytes with a suffix K, M, G or T, or empty for no file is allowed"
        )
    return bad


def files(wanted: Wanted) -> dict[str, str]:
    """The owned files' texts by path below /etc; empty text stands for no file."""
    modules = "".join(f"{name}\n" for name in wanted.modules)
    # pam_limits leaves root out of "*", so root has lines of its own.
    limits = "".join(f"{who} {kind} memlock {wanted.memlock}\n" for who in ("*", "root") for kind in ("soft", "hard"))
    return {
        MODULES_FILE: HEADER + modules if modules else "",
        LIMITS_FILE: HEADER + limits if wanted.memlock else "",
        SYSTEMD_FILE: f"{HEADER}[Manager]\nDefaultLimitMEMLOCK={wanted.default_memlock}\n"
        if wanted.default_memlock
        else "",
    }


def memlock_bytes(value: str) -> int | None:
    """A limits.conf value in bytes; None stands for unlimited."""
    return None if value == "unlimited" else int(value) * 1024


def limit_refusal(wanted: Wanted, hard: str, allowed: bool) -> str:
    """Why the limits file must not be written: pam_limits could not set it, and may refuse the login for that (pam_limits(8))."""
    if not wanted.memlock or allowed:
        return ""
    return (
        f"memlock {wanted.memlock} is above this machine's hard limit ({hard}) and root may not raise it (no CAP_SYS_RESOURCE, as in "
        "a container). The limit would not take effect: pam_limits logs an error at every login, and on some systems refuses the login, "
        "SSH included. Set rdma_memlock to a number of KiB within the limit, or to an empty text for no file"
    )


def to_load(modules: Iterable[str], loaded: Iterable[str], builtin: Iterable[str]) -> tuple[str, ...]:
    """Modules that are neither loaded nor part of the kernel; names compare with - and _ alike."""
    there = {_same(name) for name in (*loaded, *builtin)}
    return tuple(name for name in modules if _same(name) not in there)


def depended_on(shown: str, loaded: Iterable[str]) -> list[str]:
    """Modules that are loaded before this one and are not there yet. shown: what `modprobe --show-depends` prints of it."""
    paths = [words[1] for line in shown.splitlines() if (words := line.split())[:1] == ["insmod"] and len(words) > 1]
    there = {_same(name) for name in loaded}
    return [name for name in builtin_names("\n".join(paths))[:-1] if _same(name) not in there]


def builtin_names(text: str) -> list[str]:
    """Module names of a kernel's modules.builtin file."""
    return [re.sub(r"\.ko(\.\w+)?$", "", line.rsplit("/", 1)[-1]) for line in text.split()]


def _same(name: str) -> str:
    return name.replace("-", "_")


def decide(wanted: Wanted, etc: str, current: Mapping[str, str], missing: Sequence[str]) -> RdmaPlan:
    """The files that differ and the modules to load now. current: texts of our files by path below etc."""
    return RdmaPlan(
        files=tuple(
            Change(f"{etc}/{name}", current.get(name, ""), text, _WHY[name])
            for name, text in files(wanted).items()
            if current.get(name, "") != text
        ),
        modules=tuple(missing) if wanted.load else (),
    )


def merged(record: Mapping[str, Any], planned: RdmaPlan) -> dict[str, Any]:
    """The record with what this plan replaces; what is recorded already stays."""
    modules = list(record.get("modules", []))
    modules += [name for name in (*planned.brought, *planned.modules) if name not in modules]
    return {"files": before.remember(record.get("files", {}), planned.files), "modules": modules}


def way_back(record: Mapping[str, Any], etc: str, current: Mapping[str, str], loaded: Iterable[str]) -> RdmaPlan:
    """From what is recorded and what is now to the machine as it was. current: texts of our files by path below etc."""
    now = {f"{etc}/{name}": text for name, text in current.items()}
    changes, notes = before.returning({**before.absent_before(now), **record.get("files", {})}, now)
    there = {_same(name) for name in loaded}
    unload = tuple(name for name in reversed(record.get("modules", [])) if _same(name) in there)
    return RdmaPlan(files=tuple(changes), unload=unload, notes=tuple(notes))
