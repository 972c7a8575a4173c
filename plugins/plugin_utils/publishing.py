# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a prefix hold a directory: what is equal stays, the manifest comes last. Nothing in the prefix is ever deleted."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import objects, publish, published, units
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.publish import Item, Local, Publication, Remote
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.local_files import LocalError
from ansible_collections.gb10.ring.plugins.plugin_utils.reading import Reading, store_etag
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_upload import Uploader, remote_of


@dataclass(frozen=True)
class Job:
    """name: of the checkpoint. part_size: in bytes. workers: files read, or read and uploaded, at a time.

    moved: told of bytes of an upload, and whether an earlier run had brought them. finished: told of each file.
    """

    client: Any
    settings: s3.Settings
    name: str
    part_size: int
    workers: int
    moved: Callable[[int, bool], None] = lambda _count, _earlier: None
    finished: Callable[[], None] = lambda: None


def look(job: Job, files: Iterable[Local]) -> Publication:
    """What has to be done. A file is read for it only where an object of its size is there already."""
    local = list(files)
    there = _existing(job)
    heads = s3.heads(job.client, job.settings, [file.path for file in local if file.path in there])
    remotes = {path: remote_of(head) for path, head in heads.items() if head is not None}
    items = tuple(_each(job, local, lambda file: _item(job, file, remotes.get(file.path))))
    extra = tuple(sorted(there - {file.path for file in local} - {published.NAME}))
    seen = Publication(items, extra=extra)
    return replace(seen, manifest_was=_manifest_was(job, seen, published.NAME in there))


def _existing(job: Job) -> set[str]:
    try:
        return set(s3.listed(job.client, job.settings))
    except S3Error as error:
        if "no object below that prefix" in str(error):
            return set()
        raise


def _item(job: Job, file: Local, remote: Remote | None) -> Item:
    was = publish.obvious(file, remote)
    if was is not None or remote is None:
        return Item(file, was or "absent")
    reading = Reading(file)
    md5s = []
    for piece in reading.pieces(publish.parts(file.size, publish.part_size(file.size, job.part_size))):
        if not remote.crc64nvme:
            md5s.append(piece.md5())
    return publish.judged(file, remote, reading.digests(), store_etag(md5s) if md5s else "")


def _manifest_was(job: Job, seen: Publication, there: bool) -> str:
    """What is wrong with the manifest that is there; empty when it is the right one."""
    if not there:
        return "absent"
    known = [item.digests for item in seen.items if item.digests is not None]
    if seen.uploads or len(known) < len(seen.items):
        return "out of date"
    text = s3.read(job.client, job.settings, published.NAME)
    return "" if text == published.render(job.name, known).encode() else "out of date"


def apply(job: Job, seen: Publication) -> str:
    """Upload what differs and write the manifest last; returns its text. Raises S3Error with every file that failed."""
    uploader = Uploader(job.client, job.settings, job.part_size, job.moved)

    def digests(item: Item) -> Digests:
        if item.digests is not None and not item.was:
            return item.digests
        known = uploader.put(item.local)
        job.finished()
        return known

    # The longest first: two of the real files are 101 GB, and one that starts last decides when the run ends.
    ordered = sorted(seen.items, key=lambda item: -item.local.size)
    known = _each(job, ordered, digests)
    text = published.render(job.name, known)
    uploader.put_text(published.NAME, text)
    return text


def _each(job: Job, things: Iterable[Any], work: Callable[[Any], Any]) -> list[Any]:
    """The work on all things, in their order. One that fails does not stop the others; all failures are told at once."""
    wanted = list(things)
    with concurrent.futures.ThreadPoolExecutor(max_workers=job.workers) as pool:
        futures = [pool.submit(work, thing) for thing in wanted]
        concurrent.futures.wait(futures)
    failures = [future.exception() for future in futures if future.exception() is not None]
    unexpected = next((error for error in failures if not isinstance(error, (S3Error, LocalError))), None)
    if unexpected is not None:
        raise unexpected
    if failures:
        texts = sorted({str(error) for error in failures})
        raise S3Error(
            f"{len(failures)} of {units.files(len(wanted))} could not be published, the manifest was not written; what was "
            "uploaded stays and is not uploaded again.\n" + "\n".join(texts)
        )
    return [future.result() for future in futures]


def summary(job: Job, seen: Publication, manifest: str) -> dict[str, Any]:
    """For the result of the task. manifest: the text that was written, empty when none was."""
    uploads = seen.uploads
    known = [item.digests for item in seen.items if item.digests is not None]
    if not manifest and len(known) == len(seen.items) and not uploads:
        manifest = published.render(job.name, known)
    return {
        "name": job.name,
        "revision": json.loads(manifest)["revision"] if manifest else "",
        "files": len(seen.items),
        "bytes": seen.bytes,
        "upload": {"files": len(uploads), "bytes": sum(item.local.size for item in uploads)},
        "extra": list(seen.extra),
        "manifest": objects.object_key(job.settings.prefix, published.NAME),
        "resumed_bytes": 0,
        "seconds": 0.0,
        "mb_per_s": 0.0,
    }
