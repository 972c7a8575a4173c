# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of distributing images that touches the machine: docker and podman, the archive, the stream from a neighbour."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..host import HostError, read_text, run
from .image import own_name, short
from .machine import RUNTIMES

RECORD = "/etc/gb10-ring/engine.json"
TEMPORARY = "gb10-ring-image-"
_CONNECT_S = 15.0
_SLICE = 1 << 20
_LOOK_S = 60.0
_ROOT = {"docker": "{{.DockerRootDir}}", "podman": "{{.Store.GraphRoot}}"}
_ALONE = "sha256:"


class BrokenError(Exception):
    """A transfer that did not come to its end; its text says why."""


@dataclass(frozen=True)
class Route:
    """Where to take an image from, and how long a neighbour may be silent, in seconds; docker writes all layers before the first byte."""

    addresses: Sequence[str]
    port: int
    token: str
    stall_s: float


def full(image_id: str) -> str:
    """podman leaves the algorithm out, docker does not."""
    return image_id if not image_id or ":" in image_id else _ALONE + image_id


def name_in_address(image_id: str) -> str:
    return image_id.partition(":")[2] or image_id


def save_command(runtime: str, image_id: str) -> list[str]:
    return [RUNTIMES[runtime], "image", "save", image_id]


def images(runtime: str) -> dict[str, int]:
    """Bytes of every image on the machine, by id."""
    program = RUNTIMES[runtime]
    listed = run([program, "image", "ls", "--all", "--quiet", "--no-trunc"], timeout=_LOOK_S).stdout.split()
    if not listed:
        return {}
    # One that goes meanwhile makes the command fail; the others are printed all the same.
    shown = run([program, "image", "inspect", *sorted(set(listed))], timeout=_LOOK_S, check=False).stdout
    return {full(str(row["Id"])): int(row["Size"]) for row in _parsed(shown)}


def id_of(runtime: str, reference: str) -> str:
    """The id of the image of that name, empty when there is none."""
    if not reference:
        return ""
    rows = _parsed(run([RUNTIMES[runtime], "image", "inspect", reference], timeout=_LOOK_S, check=False).stdout)
    return full(str(rows[0]["Id"])) if rows else ""


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text or "[]")
    except ValueError:
        return []
    return [row for row in rows if isinstance(row, dict)]


def store(runtime: str) -> Path:
    """The directory of the images."""
    return Path(run([RUNTIMES[runtime], "info", "--format", _ROOT[runtime]], timeout=_LOOK_S).stdout.strip())


def disk(place: Path) -> dict[str, int]:
    """Size of the file system there, and what a program may still take, in bytes."""
    try:
        held = os.statvfs(place)
    except OSError as error:
        raise HostError(f"{place}: {error.strerror}") from error
    return {"size": held.f_blocks * held.f_frsize, "available": held.f_bavail * held.f_frsize}


def unit_image(path: str = RECORD) -> str:
    """The image that the node's unit was rendered with, empty without one."""
    try:
        container = json.loads(read_text(path) or "{}").get("container") or {}
    except (ValueError, AttributeError):
        return ""
    return str(container.get("image", ""))


def archive_ids(path: str) -> list[str]:
    """Ids of the images in a docker archive: digests of their configurations, and of their manifests where it has an index."""
    try:
        with tarfile.open(path) as archive:
            texts = {
                member.name: _text(archive, member)
                for member in archive
                if member.name in ("manifest.json", "index.json")
            }
        configs = [row["Config"] for row in json.loads(texts["manifest.json"])]
        found = [_ALONE + Path(config).name.partition(".")[0] for config in configs]
        found += [row["digest"] for row in json.loads(texts.get("index.json", "{}")).get("manifests", [])]
    except OSError as error:
        raise HostError(f"engine_image_archive {path}: {error.strerror or error}") from error
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HostError(f"engine_image_archive {path}: {error or type(error).__name__}") from error
    return list(dict.fromkeys(found))


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member)
    return content.read().decode() if content else ""


def pull(runtime: str, reference: str, timeout: float) -> None:
    run([RUNTIMES[runtime], "pull", "--quiet", reference], timeout=timeout)


def load(runtime: str, archive: str, timeout: float) -> None:
    with _room(runtime) as environment:
        run([RUNTIMES[runtime], "load", "--quiet", "--input", archive], timeout=timeout, env=environment)


def take(runtime: str, image_id: str, route: Route, timeout: float) -> str:
    """Load the image from the first neighbour that gives it; its address. Raises HostError when none does, with each one's reason."""
    said = []
    for address in route.addresses:
        try:
            with _offered(address, image_id, route) as stream, _room(runtime) as environment:
                _load_stream(runtime, stream, environment, timeout)
        except (OSError, http.client.HTTPException, BrokenError) as error:
            said.append(f"{address}: {_words(error)}")
            continue
        if image_id in images(runtime):
            return address
        said.append(f"{address}: it came whole and is another image")
    raise HostError(
        f"no neighbour gave {short(image_id)}: {'; '.join(said)}. Nothing of it was kept. Cure: what is wrong there, then run again"
    )


def _words(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the stream ended before the image did"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextlib.contextmanager
def _offered(address: str, image_id: str, route: Route) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(address, route.port, timeout=_CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(route.stall_s)
        connection.request("GET", f"/{route.token}/{name_in_address(image_id)}")
        answer = connection.getresponse()
        if answer.status != 200:
            raise BrokenError(f"it answers {answer.status} {answer.reason}")
        yield answer
    finally:
        connection.close()


def _load_stream(
    runtime: str, stream: IO[bytes] | http.client.HTTPResponse, env: Mapping[str, str], timeout: float
) -> None:
    """Let the runtime read the stream. One that breaks off is ended, so that the runtime removes what it has of it by itself."""
    argv = [RUNTIMES[runtime], "load", "--quiet"]
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=words, stderr=words, env={**os.environ, "LC_ALL": "C", **env}
        ) as loading,
    ):
        broken: Exception | None = None
        try:
            if loading.stdin:
                shutil.copyfileobj(stream, loading.stdin, _SLICE)
        except (OSError, http.client.HTTPException) as error:
            broken = error
        with contextlib.suppress(OSError):
            if loading.stdin:
                loading.stdin.close()
        try:
            status = loading.wait(timeout)
        except subprocess.TimeoutExpired:
            loading.terminate()
            raise BrokenError(f"{' '.join(argv)} did not end within {timeout:g} s after the last byte") from None
        if broken and not isinstance(broken, BrokenPipeError):
            raise broken
        if status or broken:
            words.seek(0)
            said = words.read().decode("utf-8", "replace").strip().splitlines() or ["no output"]
            raise BrokenError(f"{' '.join(argv)}: exit {status}: {said[-1]}")


@contextlib.contextmanager
def _room(runtime: str) -> Iterator[dict[str, str]]:
    """Environment for loading. Podman keeps the stream in a temporary file, which is to lie beside the images and to go in any case."""
    if runtime == "docker":
        yield {}
        return
    place = store(runtime).parent
    for stale in place.glob(f"{TEMPORARY}*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=place)
    try:
        yield {"TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def look(options: Mapping[str, Any]) -> dict[str, Any]:
    """What M(gb10.ring.engine_image) returns, from its options. Raises HostError."""
    runtime, held, problem = options["runtime"], images(options["runtime"]), ""
    inside: list[str] = []
    if options["archive"] and options["image_id"] not in held:
        try:
            inside = archive_ids(options["archive"])
        except HostError as error:  # of no importance where another node has the image
            problem = str(error)
    return {
        "images": held,
        "reference_id": id_of(runtime, options["image"]),
        "archive_ids": inside,
        "archive_problem": problem,
        "unit_image": unit_image(),
        "disk": disk(store(runtime)),
    }


def bring(options: Mapping[str, Any]) -> dict[str, Any]:
    """Do the step; what there is afterwards. Raises HostError unless the wanted image is there then."""
    runtime, wanted, timeout = options["runtime"], options["image_id"], options["timeout_s"]
    taken = {}
    if options["step"] == "take":
        route = Route(options["sources"], options["port"], options["token"], options["stall_timeout_s"])
        taken = {"source": take(runtime, wanted, route, timeout)}
    elif options["step"] == "load":
        load(runtime, options["archive"], timeout)
    else:
        pull(runtime, options["image"], timeout)
    found = look(options)
    if (wanted or found["reference_id"]) not in found["images"]:
        raise HostError(
            f"{options['archive'] or options['image']} is here now and is {short(found['reference_id']) or 'another image'}, expected "
            f"{wanted or options['image']}. Cure: correct image_id or image in engine_overrides"
        )
    run([RUNTIMES[runtime], "tag", wanted or found["reference_id"], own_name(wanted or found["reference_id"])])
    return {**found, **taken}
