# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and changing the machine's netplan configuration, as the pure core in netplan.py plans it."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath

from ..host import HostError, read_text, run, sync_directory, write_text
from .links import Link, parse_links
from .netplan import FILE_MODE, NetplanPlan, State, explain_refusal

DIRECTORIES = ("etc/netplan", "run/netplan", "usr/lib/netplan")
GENERATE_TIMEOUT = 60.0  # seconds
APPLY_TIMEOUT = 120.0  # seconds; netplan waits for udev, which may settle late


def read_links() -> dict[str, Link]:
    """All interfaces of this machine."""
    said = run(["ip", "-j", "addr"])
    try:
        return parse_links(said.stdout)
    except ValueError as error:
        raise HostError(f"ip -j addr: not the JSON that was expected: {error}") from error


def locate(name: str, root: Path) -> Path:
    """The file of that name under ``root`` (``/`` but for tests). Raises HostError when netplan would not read it."""
    path = PurePosixPath(name)
    if str(path.parent) != "/etc/netplan" or path.suffix != ".yaml":
        raise HostError(f"path is '{name}', expected a file directly in /etc/netplan with a name that ends in .yaml")
    return root / path.relative_to("/")


def read_state(path: Path) -> State:
    text = read_text(path)
    mode = None if text is None else path.stat().st_mode & 0o7777
    return State(text, mode, read_links())


def validate(path: Path, text: str, root: Path) -> None:
    """Let netplan judge the machine's whole configuration with the new file in it, on a copy. Raises HostError."""
    with tempfile.TemporaryDirectory(prefix="gb10-netplan-") as name:  # 0700, since the copies may hold secrets
        copy = Path(name)
        for directory in DIRECTORIES:
            _copy_yaml(root / directory, copy / directory)
        (copy / "lib").symlink_to("usr/lib")  # older netplan looks there
        write_text(copy / path.relative_to(root), text, FILE_MODE)
        # netplan is Python: without this a dry run leaves its bytecode caches behind
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        done = run(["netplan", "generate", "--root-dir", name], timeout=GENERATE_TIMEOUT, check=False, env=quiet)
        if done.rc != 0:
            raise HostError(explain_refusal(done.stderr or done.stdout, name, f"/{path.relative_to(root)}"))


def _copy_yaml(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in sorted(source.glob("*.yaml")):
        write_text(target / file.name, read_text(file) or "", FILE_MODE)


def apply(planned: NetplanPlan, path: Path, before: State) -> None:
    """Do what is planned. When netplan fails, the earlier file and what it says come back. Raises HostError."""
    if planned.rewrite:
        write_text(path, planned.text, FILE_MODE)
    if not planned.activate:
        return
    try:
        run(["netplan", "apply"], timeout=APPLY_TIMEOUT)
    except HostError as error:
        raise HostError(f"{error}. {_restore(path, before)}") from error


def _restore(path: Path, before: State) -> str:
    """Put the earlier file back and apply it; returns what became of it, for the message."""
    try:
        if before.text is None:
            path.unlink(missing_ok=True)
            sync_directory(path.parent)
        else:
            write_text(path, before.text, before.mode or FILE_MODE)
    except (HostError, OSError) as error:
        return f"Putting the earlier {path.name} back failed too: {error}. Cure: restore or remove it, then run 'netplan apply'"
    what = "The new file is removed again" if before.text is None else "The earlier file is back"
    try:
        run(["netplan", "apply"], timeout=APPLY_TIMEOUT)
    except HostError as error:
        return f"{what}, but applying that failed too: {error}. Cure: find out why 'netplan apply' fails on this node"
    return f"{what} and applied."
