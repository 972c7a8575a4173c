# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds NCCL libraries inside a container image of Docker or Podman, without starting it.

Where the image lies in overlay directories, which is usual, those are read as they are and nothing is made. Elsewhere (Docker with
containerd's image store, vfs, btrfs) a container is created, never started, read as a tar stream and removed by its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from ..host import Completed, HostError, run
from ..memory.nccl_files import CHUNK, Library, is_library, scan

RUNTIMES = ("docker", "podman")
EXPORT_TIMEOUT_S = 900.0  # 30 GB at 40 MB/s
OPAQUE = "trusted.overlay.opaque"
NOTHING = "/gb10-ring-never-started"  # images without a command can only be created with one

Run = Callable[..., Completed]


@dataclass(frozen=True)
class Image:
    """An image as its runtime describes it. layers: directories, the uppermost first; empty when they cannot be read."""

    runtime: str
    id: str
    layers: tuple[str, ...] = ()


def runtimes(wanted: str) -> list[str]:
    """Programs to ask. wanted: one of RUNTIMES, or auto for those that are installed."""
    return [wanted] if wanted != "auto" else [name for name in RUNTIMES if shutil.which(name)]


def described(runtime: str, text: str) -> Image | None:
    """From what ``image inspect`` prints; None when it is of no image."""
    try:
        found = json.loads(text)[0]
        driver = found.get("GraphDriver") or {}
        data = (driver.get("Data") or {}) if str(driver.get("Name", "")).startswith("overlay") else {}
        layers = [data["UpperDir"], *data.get("LowerDir", "").split(":")] if data.get("UpperDir") else []
        return Image(runtime, str(found["Id"]), tuple(layer for layer in layers if layer))
    except (ValueError, LookupError, AttributeError, TypeError):
        return None


def find(reference: str, wanted: str, ask: Run = run) -> Image | None:
    """The image of that reference, None when no runtime has it. Raises HostError when there is no runtime."""
    names = runtimes(wanted)
    if not names:
        raise HostError(
            f"neither {' nor '.join(RUNTIMES)} is installed on this machine, so image {reference} cannot be looked at"
        )
    for name in names:
        done = ask([name, "image", "inspect", "--", reference], check=False)
        image = described(name, done.stdout) if done.rc == 0 else None
        if image:
            return image
    return None


def run_as(reference: str, record: str | None) -> str:
    """The name by which the node has the image: a digest of a registry is known only where the image was pulled, the others run it by its
    id. record: text of the engine's record on the node."""
    try:
        container = json.loads(record or "{}")["container"]
        return str(container["image"]) if container["reference"] == reference else reference
    except (ValueError, LookupError, TypeError):
        return reference


def is_there(reference: str, wanted: str, ask: Run = run) -> bool:
    """Whether a runtime of this machine has the image."""
    try:
        return find(reference, wanted, ask) is not None
    except HostError:
        return False


def libraries(reference: str, wanted: str, ask: Run = run) -> list[Library]:
    """Each NCCL library of the image; empty when there is none or no image. Raises HostError."""
    image = find(reference, wanted, ask)
    if image is None:
        return []
    if image.layers and all(os.path.isdir(layer) for layer in image.layers):
        return of_layers(reference, image.layers)
    return _of_export(reference, image, ask)


def of_layers(reference: str, layers: Sequence[str]) -> list[Library]:
    """Those that a container would see: not those that a layer above removes or puts something else in the place of."""
    found = []
    for number, layer in enumerate(layers):
        for inside in _inside(layer):
            if not any(hides(Path(above), inside) for above in layers[:number]):
                found.append(_library(reference, inside, Path(layer, inside)))
    return found


def _inside(layer: str) -> Iterator[Path]:
    """Paths of the layer's library files; links are not followed, they may leave the image."""
    for directory, names, files in os.walk(layer):
        names.sort()
        for path in (Path(directory, name) for name in sorted(files) if is_library(name)):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(layer)


def hides(layer: Path, inside: Path) -> bool:
    """Whether this layer covers a path of the layers below: by a file, a link or a whiteout (no directory) there or on the way, or a
    directory on the way that starts afresh."""
    for part in [inside, *inside.parents][:-1]:
        path = layer / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return True
        if path.is_dir() and _opaque(path):
            return True
    return False


def _opaque(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(path, OPAQUE) == b"y"
    return False


def _library(reference: str, inside: Path, path: Path) -> Library:
    try:
        with path.open("rb") as handle:
            return scan(f"{reference}:/{inside}", handle.read)
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from error


def _of_export(reference: str, image: Image, ask: Run) -> list[Library]:
    """By way of a container that is never started."""
    created = ask([image.runtime, "create", "--network", "none", "--entrypoint", NOTHING, image.id])
    container = created.stdout.split()[-1]
    argv = [image.runtime, "export", container]
    try:
        with _output(argv) as stream:
            return of_tar(reference, stream)
    except tarfile.TarError as error:
        raise HostError(f"{' '.join(argv)}: no whole tar stream within {EXPORT_TIMEOUT_S:g} s: {error}") from error
    finally:
        ask([image.runtime, "rm", "--volumes", container])  # create made those that the image declares


def of_tar(reference: str, stream: IO[bytes]) -> list[Library]:
    """The libraries of a file system that comes as a tar stream."""
    found = []
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and is_library(member.name) else None
            if content:
                found.append(scan(f"{reference}:/{member.name}", content.read))
    while stream.read(CHUNK):  # the writer would fail if its end were not read
        continue
    return found


@contextlib.contextmanager
def _output(argv: list[str]) -> Iterator[IO[bytes]]:
    """What a command prints, while it runs. Raises HostError when it fails or does not end in time."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        timer = threading.Timer(EXPORT_TIMEOUT_S, process.kill)
        timer.start()
        try:
            yield cast("IO[bytes]", process.stdout)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if process.returncode:
        raise HostError(f"{' '.join(argv)}: exit {process.returncode}, after at most {EXPORT_TIMEOUT_S:g} s")
