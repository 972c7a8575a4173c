# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a machine's memory settings and applies a MemoryPlan to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..host import HostError, read_text, run, write_text
from ..plan import Change
from . import record, swap, sysctl
from .settings import MemoryPlan, Places, State

SWAPOFF_TIMEOUT_S = 900.0  # 16 GiB read back from a busy disk at 20 MB/s
CONF = "sysctl.d/90-gb10-ring.conf"


@dataclass(frozen=True)
class Roots:
    """Where the trees of the machine lie; the record is a file."""

    proc: Path
    etc: Path
    run: Path
    usr: Path
    record: Path

    @property
    def places(self) -> Places:
        return Places(
            sysctl_file=str(self.etc / CONF),
            fstab=str(self.etc / "fstab"),
            swaps=str(self.proc / "swaps"),
            units=str(self.etc / "systemd/system"),
        )

    def setting(self, key: str) -> Path:
        return self.proc / "sys" / sysctl.relative_path(key)


def look(roots: Roots, keys: Iterable[str]) -> State:
    """Read everything that the plan depends on."""
    return State(
        values={key: _value(roots.setting(key)) for key in keys},
        persisted=read_text(roots.etc / CONF) or "",
        config_files=tuple(_config_files(roots)),
        swaps=swap.parse_swaps(read_text(roots.proc / "swaps") or ""),
        available_kib=swap.meminfo_kib(read_text(roots.proc / "meminfo") or "", "MemAvailable"),
        fstab=read_text(roots.etc / "fstab") or "",
        units=tuple(_units(roots)),
        masked=tuple(_masked(roots.etc / "systemd/system")),
    )


def apply(planned: MemoryPlan, roots: Roots) -> None:
    """Carry the plan out, the record of what it replaces first. Raises HostError."""
    if not planned.plan.changed:
        return
    _record(planned, roots.record)
    write_settings(planned.settings, roots)
    if planned.sysctl_file:
        try:
            _replace(planned.sysctl_file)
        except HostError as error:
            put_back(planned.settings, roots)
            raise HostError(f"{error}; the earlier kernel settings are in force again") from error
    for unit in planned.mask:
        _mask(unit, roots.etc / "systemd/system")
    if planned.fstab:
        _replace(planned.fstab)
    if planned.mask or planned.fstab:
        run(["systemctl", "daemon-reload"])  # or systemd would start the old swap units again
    if planned.swapoff:
        _swapoff(roots)


def write_settings(changes: Sequence[Change], roots: Roots) -> None:
    """Write each value and read it back. If any does not stick, the earlier values return and HostError names them all."""
    failed = []
    for change in changes:
        problem = _set(roots.setting(change.what), change.after)
        if problem:
            failed.append(f"{change.what} = {change.after}: {problem} (it was {change.before})")
    if not failed:
        return
    lost = put_back(changes, roots)
    after = f"not put back: {'; '.join(lost)}" if lost else "the earlier values are in force again"
    raise HostError(f"{'; '.join(failed)}. Nothing was written to {roots.places.sysctl_file}; {after}")


def put_back(changes: Sequence[Change], roots: Roots) -> list[str]:
    """Return to the values before; a message for each that cannot be restored."""
    problems = [(change, _set(roots.setting(change.what), change.before)) for change in reversed(changes)]
    return [f"{change.what} = {change.before}: {problem}" for change, problem in problems if problem]


def _set(path: Path, value: str) -> str:
    """Write one setting; why it did not take, or empty text."""
    try:
        path.write_text(value + "\n", encoding="ascii")
    except OSError as error:
        return f"the kernel refused it: {error.strerror}"
    found = _value(path)
    return "" if found == value else f"it reads {found} after the write"


def _value(path: Path) -> str | None:
    try:
        text = read_text(path)
    except HostError:  # write-only settings, such as vm.compact_memory
        return None
    return None if text is None else sysctl.first_line(text)


def _config_files(roots: Roots) -> Iterable[sysctl.ConfigFile]:
    directories = (roots.etc, roots.run, roots.usr / "local/lib", roots.usr / "lib")
    for rank, directory in enumerate(directories):
        for path in sorted((directory / "sysctl.d").glob("*.conf")):
            text = read_text(path)
            if text is not None:  # a dangling link
                yield sysctl.ConfigFile(str(path), rank, text)


def _units(roots: Roots) -> Iterable[swap.UnitFile]:
    """Unit files in systemd's order of precedence, masks left out."""
    own = roots.etc / "systemd/system"
    directories = [own, roots.run / "systemd/system"]
    directories += [roots.run / "systemd" / name for name in ("generator.early", "generator", "generator.late")]
    directories += [roots.usr / "local/lib/systemd/system", roots.usr / "lib/systemd/system"]
    for directory in directories:
        candidates = [*sorted(directory.glob("*.swap")), *(directory / name for name in swap.ZRAM_UNITS)]
        for path in candidates:
            if path.is_file():  # false for a mask: /dev/null is no regular file
                yield swap.UnitFile(path.name, str(path), read_text(path) or "", own=directory == own)


def _masked(directory: Path) -> Iterable[str]:
    for path in sorted(directory.glob("*")):
        if path.is_symlink() and path.readlink() == Path("/dev/null"):
            yield path.name


def _record(planned: MemoryPlan, path: Path) -> None:
    before = read_text(path) or ""
    try:
        after = record.merged(before, planned)
    except ValueError as error:
        raise HostError(f"{path} {error}") from error
    if after != before:
        write_text(path, after)


def _replace(change: Change) -> None:
    """Give a file its new text and keep its mode; empty text removes it."""
    path = Path(change.what).resolve()
    if not change.after:
        path.unlink(missing_ok=True)
        return
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    write_text(path, change.after, mode)


def _mask(unit: swap.UnitFile, directory: Path) -> None:
    link = directory / unit.name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if unit.own:
            link.rename(unit.path + record.KEPT_SUFFIX)
        link.symlink_to(os.devnull)
    except OSError as error:
        raise HostError(f"cannot mask {unit.name}: {error.strerror} ({link})") from error


def _swapoff(roots: Roots) -> None:
    run(["swapoff", "-a"], timeout=SWAPOFF_TIMEOUT_S)
    left = swap.parse_swaps(read_text(roots.proc / "swaps") or "")
    if left:
        raise HostError(f"swapoff -a ended well and yet {', '.join(area.text() for area in left)} is in use")
