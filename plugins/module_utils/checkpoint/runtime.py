# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""awscrt on a node: finds it, or unpacks the wheel that the controller sent."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..host import HostError, sync_directory

Crc = Callable[[memoryview, int], int]
#: Algorithms that the standard library lacks.
AWSCRT = frozenset({"crc64nvme", "crc32c"})


def load_crc64(python_path: str) -> Crc | None:
    """The CRC-64/NVME function of awscrt from python_path or the system, or None when there is none."""
    if python_path not in sys.path and Path(python_path).is_dir():
        sys.path.insert(0, python_path)
    importlib.invalidate_caches()
    return find_crc("crc64nvme")


def find_crc(algorithm: str) -> Crc | None:
    """A CRC function of the awscrt that can be imported by now, or None."""
    try:
        function = getattr(importlib.import_module("awscrt.checksums"), algorithm)
    except (ImportError, AttributeError, OSError):
        return None
    return function if callable(function) else None


def machine() -> tuple[str, str]:
    """Processor architecture and Python version (``3.13``): what a wheel has to fit."""
    return os.uname().machine, f"{sys.version_info.major}.{sys.version_info.minor}"


def install_wheel(wheel: str, python_path: str) -> None:
    """Unpack a wheel into python_path, whole or not at all; what was there is replaced. Raises HostError."""
    target = Path(python_path)
    fresh = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fresh)
        Path(fresh).chmod(0o755)
        _swap(Path(fresh), target)
    except (OSError, zipfile.BadZipFile) as error:
        raise HostError(f"cannot unpack awscrt into {python_path}: {error}") from error
    finally:
        if fresh:
            shutil.rmtree(fresh, ignore_errors=True)
    for name in [name for name in sys.modules if name.split(".")[0] in ("awscrt", "_awscrt")]:
        del sys.modules[name]


def _swap(fresh: Path, target: Path) -> None:
    if target.is_dir():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
        target.rename(old / target.name)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        fresh.rename(target)
    sync_directory(target.parent)


def absent_text(python_path: str) -> str:
    """What to tell where awscrt is needed to read again what was staged."""
    architecture, python = machine()
    return (
        f"awscrt cannot be imported from {python_path} by Python {python} on {architecture}, and without it nothing can be read again; "
        f"unpack a wheel that fits there: python3 -m zipfile -e WHEEL {python_path}"
    )
