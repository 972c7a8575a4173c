# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a machine's memory settings, applies a MemoryPlan to it, and an UndoPlan."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import made
from ..host import HostError, read_text, replace_text, run, write_text
from ..plan import Change
from . import platform_look, record, serving, swap, sysctl
from .serving_unit import ENGINE, NAME, ServingPlaces
from .settings import THP, MemoryPlan, Places, ServingState, State
from .undo import UndoPlan, swap_notes

SWAPOFF_TIMEOUT_S = 900.0  # 16 GiB read back from a busy disk at 20 MB/s
CONF = "sysctl.d/90-gb10-ring.conf"
LOGIND = "systemd-logind.service"
BUSY = ("active", "activating", "deactivating", "reloading")


@dataclass(frozen=True)
class Roots:
    """Where the trees of the machine lie; the record is a file."""

    proc: Path
    etc: Path
    run: Path
    usr: Path
    sys: Path
    record: Path

    @property
    def places(self) -> Places:
        units = self.etc / "systemd/system"
        return Places(
            sysctl_file=str(self.etc / CONF),
            thp_file=str(self.etc / "tmpfiles.d/90-gb10-ring.conf"),
            logind_file=str(self.etc / "systemd/logind.conf.d/90-gb10-ring.conf"),
            fstab=str(self.etc / "fstab"),
            swaps=str(self.proc / "swaps"),
            units=str(units),
            serving=ServingPlaces(
                program=str(self.usr / "local/lib/gb10-ring/memory_serving.py"),
                settings=str(self.etc / "gb10-ring/memory-serving.json"),
                unit=str(units / NAME),
                link=str(units / f"{ENGINE}.wants" / NAME),
                engine_record=str(self.etc / "gb10-ring/engine.json"),
                proc_sys=str(self.proc / "sys"),
                run=str(self.run / "gb10-ring"),
            ),
        )

    @property
    def own(self) -> tuple[Path, ...]:
        """Directories that bear our name."""
        return self.etc / made.NAME, self.usr / "local/lib" / made.NAME, self.run / made.NAME

    def setting(self, key: str) -> Path:
        if key == THP:
            return self.sys / "kernel/mm/transparent_hugepage/enabled"
        return self.proc / "sys" / sysctl.relative_path(key)


def look(roots: Roots, keys: Iterable[str], serving_wanted: bool = False) -> State:
    """Read everything that the plan depends on. serving_wanted: whether settings that need an idle node to be tried are among the keys."""
    places = roots.places
    return State(
        values={key: _value(roots.setting(key)) for key in keys},
        files={path: read_text(path) or "" for path in places.owned},
        config_files=tuple(_config_files(roots)),
        swaps=swap.parse_swaps(read_text(roots.proc / "swaps") or ""),
        available_kib=swap.meminfo_kib(read_text(roots.proc / "meminfo") or "", "MemAvailable"),
        fstab=read_text(roots.etc / "fstab") or "",
        units=tuple(_units(roots)),
        masked=tuple(_masked(roots.etc / "systemd/system")),
        serving=_serving(places.serving),
        remove_ipc=_remove_ipc(),
        engine=serving_wanted and engine_runs(roots.proc),
    )


def load_record(path: Path) -> dict[str, Any]:
    """What was replaced so far. Raises HostError."""
    try:
        return record.parsed(read_text(path))
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def program() -> str:
    """Text of the program that sets values while the engine serves."""
    return inspect.getsource(serving)


def _serving(places: ServingPlaces) -> ServingState:
    """Where nothing of it is installed nothing is asked."""
    linked, installed = Path(places.link).is_symlink(), Path(places.unit).exists()
    if not (linked or installed):
        return ServingState()
    active = run(["systemctl", "is-active", ENGINE, NAME], check=False).stdout.split()
    held = read_text(Path(places.run) / serving.STATE)
    return ServingState(
        linked=linked,
        engine=active[:1] == ["active"],
        running=active[1:2] == ["active"],
        values=json.loads(held)["values"] if held else {},
    )


def _remove_ipc() -> bool | None:
    """logind's RemoveIPC as it is in force; None when logind does not answer."""
    name = "org.freedesktop.login1"
    try:
        done = run(
            ["busctl", "get-property", name, "/org/freedesktop/login1", f"{name}.Manager", "RemoveIPC"], check=False
        )
    except HostError:
        return None
    return {"b true": True, "b false": False}.get(done.stdout.strip())


def apply(planned: MemoryPlan, roots: Roots) -> None:
    """Carry the plan out, the record of what it replaces first. Raises HostError."""
    if not planned.plan.changed:
        return
    places = planned.places.serving
    if planned.trial:
        _try_serving(planned.trial, roots)
    _record(planned, roots.record)
    made.note([change.what for change in planned.files if change.after], roots.record.parent)
    write_settings(planned.settings, roots)
    if planned.link and not planned.link.after:
        _stop_serving(places)
    try:
        _write_files(planned.files)
    except HostError as error:
        put_back(planned.settings, roots)
        raise HostError(f"{error}; the earlier kernel settings are in force again") from error
    if planned.link:
        _link(Path(places.link), places.unit if planned.link.after else "")
    for unit in planned.mask:
        _mask(unit, roots.etc / "systemd/system")
    if planned.fstab:
        replace_text(planned.fstab.what, planned.fstab.after)
    _make_known(planned)
    if planned.swapoff:
        _swapoff(roots)


def engine_runs(proc: Path) -> bool:
    """Whether an engine serves or is on its way up or down; trying values would take memory from it. One of a cluster has no unit."""
    busy = run(["systemctl", "is-active", ENGINE], check=False).stdout.strip() in BUSY
    return busy or bool(platform_look.processes(proc.parent))


def _try_serving(changes: Sequence[Change], roots: Roots) -> None:
    """Write each value, read it back, and return to the earlier one: only values that the kernel takes are persisted."""
    failed = []
    for change in changes:
        problem = _set(roots.setting(change.what), change.after)
        lost = _set(roots.setting(change.what), change.before)
        if problem:
            failed.append(f"{change.what} = {change.after}: {problem} (it was {change.before})")
        if lost:
            failed.append(f"{change.what} = {change.before} could not be put back: {lost}")
    if failed:
        raise HostError(f"nothing was changed: serving settings were tried: {'; '.join(failed)}")


def _stop_serving(places: ServingPlaces) -> None:
    """Stop the unit, which puts its values back, while its files are there; if it could not, put them back here."""
    run(["systemctl", "stop", NAME], check=False)
    try:
        serving.put_back(Path(places.proc_sys), Path(places.run) / serving.STATE)
    except (OSError, ValueError, KeyError) as error:
        raise HostError(f"cannot put back what {places.run}/{serving.STATE} keeps: {error}") from error


def _make_known(planned: MemoryPlan) -> None:
    """Let systemd and logind read what was written for them."""
    places = planned.places.serving
    serving_changed = planned.touches(places.unit, places.settings, places.program) or planned.link is not None
    if planned.mask or planned.fstab or serving_changed:
        run(["systemctl", "daemon-reload"])  # or systemd would start the old swap units again
    if serving_changed and Path(places.unit).exists() and _serving(places).engine:
        run(["systemctl", "restart", NAME])
    if planned.touches(planned.places.logind_file):
        run(["systemctl", "try-reload-or-restart", LOGIND])


def undo(planned: UndoPlan, roots: Roots) -> list[str]:
    """Carry the way back out, the record last. Returns what could not come back yet. Raises HostError, and keeps the record then."""
    lost = []
    units = roots.etc / "systemd/system"
    if planned.link or any(change.what == planned.places.serving.unit for change in planned.files):
        _stop_serving(planned.places.serving)
    if planned.link:
        Path(planned.link.what).unlink(missing_ok=True)
        _prune(Path(planned.link.what).parent)
    write_settings(planned.settings, roots)
    for change in planned.files:
        replace_text(change.what, change.after)
    for name, kept in planned.unmask.items():
        (units / name).unlink(missing_ok=True)
        if kept and Path(kept).exists():
            Path(kept).rename(units / name)
    if planned.fstab:
        replace_text(planned.fstab.what, planned.fstab.after)
    if planned.plan.changed:
        run(["systemctl", "daemon-reload"])
    if any(change.what == planned.places.logind_file for change in planned.files):
        run(["systemctl", "try-reload-or-restart", LOGIND])
    if planned.swapon:
        lost = _swapon(planned, roots)
    roots.record.unlink(missing_ok=True)
    made.tidy(roots.record.parent, roots.own)
    return lost


def _swapon(planned: UndoPlan, roots: Roots) -> list[str]:
    """Areas of fstab at once; those of units (zram) come with their units. A note for each that is not in use.

    Somebody may have removed one meanwhile: swapon -a then fails and takes the others, and the start of a unit waits for its device in vain.
    """
    units = [name for name in planned.unmask if name.endswith(".swap")]
    for argv in (["swapon", "-a"], *(["systemctl", "start", name] for name in units)):
        with contextlib.suppress(HostError):
            run(argv, timeout=SWAPOFF_TIMEOUT_S, check=False)
    active = {area.name for area in swap.parse_swaps(read_text(roots.proc / "swaps") or "")}
    # A device of zram comes with its unit at the next boot.
    gone = {name for name in planned.swapon if not Path(name).exists() and not name.startswith("/dev/zram")}
    return swap_notes(planned.swapon, active, gone)


def _prune(directory: Path) -> None:
    """Remove a directory that we may have made, if nothing is left in it."""
    with contextlib.suppress(OSError):
        directory.rmdir()


def _link(link: Path, target: str) -> None:
    """Make the link, or remove it for an empty target."""
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        if target:
            link.symlink_to(target)
        else:
            _prune(link.parent)
    except OSError as error:
        raise HostError(f"cannot change the link {link}: {error.strerror}") from error


def _write_files(changes: Sequence[Change]) -> None:
    """All files or none of them."""
    done: list[Change] = []
    for change in changes:
        try:
            replace_text(change.what, change.after)
        except HostError:
            for earlier in reversed(done):
                with contextlib.suppress(HostError):
                    replace_text(earlier.what, earlier.before)
            raise
        done.append(change)


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
    return None if text is None else sysctl.selected(text)


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
