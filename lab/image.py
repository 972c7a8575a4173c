# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system of the stand-in engine's image: Python of the base, what it is linked with, and the stand-in. Its tar is the
same for the same base, so the image can be made anew anywhere; `docker import` needs no registry."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from .instance import CHECKOUT

# The base's merged /usr: the loader, glibc and the libraries that the standard library is linked with, and Python itself.
PATHS = ("bin", "lib", "lib64", "etc/passwd", "etc/group", "etc/nsswitch.conf", "usr/bin/env", "usr/lib64")
GLOBS = (
    "usr/bin/python3*",
    *("usr/bin/sh", "usr/bin/dash"),  # every image that serves has a shell
    "usr/lib/python3.*",
    *(
        f"usr/lib/*-linux-gnu/{stem}.so*"
        for stem in ("libc", "libm", "libz", "libexpat", "libffi", "libssl", "libcrypto")
    ),
    *(
        f"usr/lib/*-linux-gnu/{stem}.so*"
        for stem in ("libbz2", "liblzma", "libzstd", "libsqlite3", "libuuid", "libresolv")
    ),
    *(
        f"usr/lib/*-linux-gnu/{stem}*"
        for stem in ("ld-linux", "libnss_files", "libnss_dns", "libdl", "libpthread", "librt")
    ),
)
OWN = {
    CHECKOUT / "lab/engine": "opt/gb10-lab/engine",
    CHECKOUT / "plugins/module_utils/checkpoint/engram.py": "opt/gb10-lab/checkpoint/engram.py",
}
EMPTY = ("dev", "proc", "sys", "tmp", "run", "models", "cache")
ENGINE = "/opt/gb10-lab/engine/vllm"  # the program in the image
EPOCH = 0


def write(rootfs: Path, target: Path) -> None:
    """The tar of an image, from the base's root file system."""
    found = [rootfs / path for path in PATHS] + [path for pattern in GLOBS for path in rootfs.glob(pattern)]
    with tarfile.open(target, "w") as archive:
        for name in EMPTY:
            archive.addfile(_folder(name))
        members = {str(path.relative_to(rootfs)): path for path in found if path.exists() or path.is_symlink()}
        members |= {name: source for source, name in OWN.items()}
        # Docker gives folders that a tar does not name to root alone.
        for name in sorted({str(folder) for member in members for folder in PurePosixPath(member).parents} - {"."}):
            archive.addfile(_folder(name))
        for name in sorted(members):
            archive.add(members[name], name, filter=_plain)


def _folder(name: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode = tarfile.DIRTYPE, 0o755
    return made


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what differs from one developer's machine to another's, and without what no program reads."""
    if "__pycache__" in member.name or "/test/" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = EPOCH
    return member
