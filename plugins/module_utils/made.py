# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that the collection makes for its files, so that uninstalling removes those that are empty again.

Those of others, such as /etc/systemd/journald.conf.d, are recorded before they are made, in one file for all subjects: whoever is
taken back last removes them. Those that bear the collection's own name need no record.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import before
from .host import HostError, read_text, write_text
from .plan import Change

RECORD = "directories-before.json"  # beside the records of the subjects
STATE = "/var/lib/gb10-ring"
NAME = "gb10-ring"
_SYSTEM = (
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32"),
    *("lost+found", "media", "mnt", "opt", "proc", "root", "run", "sbin", "snap"),
    *("srv", "sys", "tmp", "usr", "var"),
)
OWN = ("/etc/gb10-ring", "/usr/local/lib/gb10-ring", "/run/gb10-ring/cabling", "/run/gb10-ring")


def is_own(path: Path) -> bool:
    """Whether the collection's name is in one of its components."""
    return any(NAME in part for part in path.parts)


def missing(files: Iterable[str | Path]) -> list[str]:
    """Directories of others that writing these files makes, the outermost first."""
    parents = {parent for file in files for parent in Path(file).parents}
    return sorted(str(path) for path in parents if not (path.exists() or is_own(path)))


def recorded(state: Path) -> list[str]:
    """Raises HostError."""
    path = state / RECORD
    try:
        return list(before.parse(read_text(path), "gb10.ring").get("directories", []))
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def note(files: Iterable[str | Path], state: Path) -> None:
    """Record what these files make necessary; to be called before they are written. Raises HostError."""
    known, new = recorded(state), missing(files)
    if set(new) - set(known):
        _record(state, [*known, *new])


def _record(state: Path, directories: Iterable[str]) -> None:
    write_text(state / RECORD, before.render({"directories": sorted(set(directories))}))


def adopt(directory: Path, state: Path) -> None:
    """Take over the record that lies in a directory which is about to go. Raises HostError."""
    known = recorded(directory) if directory.is_dir() else []
    if known:
        _record(state, [*recorded(state), *known])


def tidy(state: Path, own: Sequence[str | Path] = OWN) -> None:
    """Remove what is empty. A directory that holds something else of ours stays on record, one that others use is theirs now."""
    for directory in own:
        _gone(Path(directory))
    known = sorted(recorded(state), reverse=True)  # the innermost first
    kept = [directory for directory in known if not _gone(Path(directory)) and _holds_ours(directory)]
    if kept:
        _record(state, kept)
    else:
        (state / RECORD).unlink(missing_ok=True)
    if NAME in state.name:
        _gone(state)


def _gone(directory: Path) -> bool:
    """Remove it if it is empty; whether it is gone. A mount point stays."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _holds_ours(directory: str) -> bool:
    return any(NAME in path.name for path in Path(directory).rglob("*"))


def removals(paths: Iterable[str], variable: str = "paths") -> list[Change]:
    """A change for each path that exists. Raises HostError for one that is nobody's to remove. variable: where the paths are from."""
    wrong = [path for path in paths if not path.startswith("/") or ".." in path or _of_the_system(Path(path))]
    if wrong:
        raise HostError(
            f"{variable} is {', '.join(wrong)}, expected absolute paths without .., and no directory of the system such as /etc or /var: "
            "all that is in it would go"
        )
    return [Change(path, _kind(Path(path)), "", "made by gb10.ring") for path in paths if _kind(Path(path))]


def _of_the_system(path: Path) -> bool:
    """Whether it is the root or a directory in it that every machine has (Filesystem Hierarchy Standard 3.0)."""
    return len(path.parts) < 2 or (len(path.parts) == 2 and path.parts[1] in _SYSTEM)


def _kind(path: Path) -> str:
    """What it is, empty for nothing or an empty mount point."""
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.exists():
        return ""
    if path.is_mount() and not any(path.iterdir()):
        return ""
    return "directory" if path.is_dir() else "file"


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all that is in it; of a mount point only what is in it. Raises HostError."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        elif path.is_mount():
            for inside in path.iterdir():
                remove(inside)
        else:
            shutil.rmtree(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise HostError(f"cannot remove {error.filename or path}: {error.strerror}") from error
