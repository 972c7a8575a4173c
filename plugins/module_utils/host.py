# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few functions that touch the machine: read, write atomically, run. Everything that decides is elsewhere and pure."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class HostError(Exception):
    """An expected failure on this machine; its text is the message for the user."""


@dataclass(frozen=True)
class Completed:
    """argv, exit status, and decoded output of a command that ran to its end."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    def message(self) -> str:
        """The command and the last line it said, for an error text."""
        said = (self.stderr.strip() or self.stdout.strip() or "no output").splitlines()[-1]
        return f"{' '.join(self.argv)}: exit {self.rc}: {said}"


def run(
    argv: Sequence[str],
    timeout: float = 60.0,
    check: bool = True,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
) -> Completed:
    """Run argv (never through a shell) in the C locale; timeout in seconds; stdin: what the program reads there.

    Raises HostError when the program is missing, does not end in time or, with check, exits non-zero.
    """
    environment = {**os.environ, "LC_ALL": "C", **(env or {})}
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(f"{argv[0]} is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{' '.join(argv)} did not end within {timeout:g} s") from error
    completed = Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
    if check and completed.rc != 0:
        raise HostError(completed.message())
    return completed


def switch_off(unit: str, run: Callable[..., Completed] = run) -> None:
    """Stop a systemd unit and keep it from starting at boot, also one whose file somebody has removed. Raises HostError when it runs on.

    run: what runs a command.
    """
    if run(["systemctl", "disable", "--quiet", "--now", "--", unit], check=False).rc == 0:
        return
    stopped = run(["systemctl", "stop", "--", unit], check=False)  # there may be no file to disable
    if run(["systemctl", "is-active", "--quiet", "--", unit], check=False).rc == 0:
        raise HostError(stopped.message() if stopped.rc else f"{unit} was stopped and yet is active")


_NULL = os.makedev(1, 3)
#: Bytes of the largest text that is read: the plan of a checkpoint of 510 GB with all its chunk checksums is 2 MB.
TEXT_LIMIT = 64 << 20


def read_text(path: str | Path) -> str | None:
    """The file's text, or None when it is absent. Raises HostError when it is there but cannot be read, is no file or too large for a text."""
    try:
        with os.fdopen(open_regular(path), encoding="utf-8", errors="replace") as handle:
            if os.fstat(handle.fileno()).st_size > TEXT_LIMIT:
                raise HostError(f"cannot read {path}: it is larger than {TEXT_LIMIT >> 20} MiB")
            return handle.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def open_regular(path: str | Path) -> int:
    """A descriptor to read this file from; the caller closes it. Raises OSError, also for a pipe, which would keep its reader waiting.

    A link to /dev/null, by which systemd and sysctl.d mask a file, is an empty one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def write_text(path: str | Path, text: str, mode: int = 0o644, mtime_ns: int | None = None) -> None:
    """Replace the file atomically (temporary file beside it, fsync, rename); parents are made. Raises HostError.

    mtime_ns: modification time that it gets, in ns; the present one unless given.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
                os.fchmod(handle.fileno(), mode)
                handle.write(text)
                handle.flush()
                if mtime_ns is not None:
                    os.utime(handle.fileno(), ns=(mtime_ns, mtime_ns))
                os.fsync(handle.fileno())
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(target.parent)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from error


def replace_text(path: str | Path, text: str) -> None:
    """Give a file its new text and keep its mode; empty text removes it. Links are followed. Raises HostError."""
    target = Path(path).resolve()
    try:
        if not text:
            target.unlink(missing_ok=True)
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
    except OSError as error:
        raise HostError(f"cannot replace {path}: {error.strerror}") from error
    write_text(target, text, mode)


def sync_directory(path: str | Path) -> None:
    """fsync a directory, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
