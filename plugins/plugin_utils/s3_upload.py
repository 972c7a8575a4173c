# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts one file into the object store, in parts, with the CRC-64/NVME of the whole object; goes on where a run was broken off."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

try:
    from botocore.exceptions import ClientError
except ImportError:
    ClientError = Exception  # s3.connect says that boto3 is missing

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import objects, publish
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.publish import Local, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.reading import Piece, Reading
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

#: Answers that mean "you cannot list unfinished uploads here", after which every upload starts at its beginning.
_NO_LIST = ("AccessDenied", "403", "NotImplemented", "501", "MethodNotAllowed", "405", "NoSuchUpload")
_OLDEST = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class Uploader:
    """moved: told of bytes that the store has, and whether an earlier run had brought them."""

    client: Any
    settings: s3.Settings
    part_size: int
    moved: Callable[[int, bool], None]

    def put(self, local: Local) -> Digests:
        """Upload and check what the store says of it. Raises S3Error, LocalError; parts that arrived stay for the next run."""
        parts = publish.parts(local.size, publish.part_size(local.size, self.part_size))
        reading = Reading(local)
        if len(parts) == 1:
            for piece in reading.pieces(parts):
                self._put_whole(local.path, piece)
        else:
            self._put_parts(local.path, reading, parts)
        digests = reading.digests()
        self._check(local, digests)
        return digests

    def put_text(self, path: str, text: str) -> None:
        """A small object of ours."""
        self._call(
            f"writing {path}", "put_object", Key=self._key(path), Body=text.encode(), ContentType="application/json"
        )

    def _put_whole(self, path: str, piece: Piece) -> None:
        self._call(
            f"writing {path}",
            "put_object",
            Key=self._key(path),
            Body=piece.data,
            ChecksumCRC64NVME=encoded(piece.crc64nvme),
        )
        self.moved(piece.part.size, False)

    def _put_parts(self, path: str, reading: Reading, parts: list[Part]) -> None:
        upload, there = self._unfinished(path, parts)
        if not upload:
            answer = self._call(
                f"writing {path}",
                "create_multipart_upload",
                Key=self._key(path),
                ChecksumAlgorithm="CRC64NVME",
                ChecksumType="FULL_OBJECT",
            )
            upload = answer["UploadId"]
        rows = []
        for piece in reading.pieces(parts):
            number = piece.part.number
            if number in there and _same(there[number], piece):
                etag = there[number]["ETag"]
                self.moved(piece.part.size, True)
            else:
                etag = self._put_part(path, upload, piece)
                self.moved(piece.part.size, False)
            rows.append({"PartNumber": number, "ETag": etag, "ChecksumCRC64NVME": encoded(piece.crc64nvme)})
        digests = reading.digests()
        self._call(
            f"writing {path}",
            "complete_multipart_upload",
            Key=self._key(path),
            UploadId=upload,
            MultipartUpload={"Parts": rows},
            ChecksumCRC64NVME=encoded(int(digests.crc64nvme, 16)),
            ChecksumType="FULL_OBJECT",
        )

    def _put_part(self, path: str, upload: str, piece: Piece) -> str:
        answer = self._call(
            f"writing part {piece.part.number} of {path}",
            "upload_part",
            Key=self._key(path),
            UploadId=upload,
            PartNumber=piece.part.number,
            Body=piece.data,
            ChecksumCRC64NVME=encoded(piece.crc64nvme),
        )
        return str(answer["ETag"])

    def _unfinished(self, path: str, parts: list[Part]) -> tuple[str, Mapping[int, Mapping[str, Any]]]:
        """The newest upload of this object that was cut into the same parts, and these parts. They are compared one by one."""

        def look() -> tuple[str, Mapping[int, Mapping[str, Any]]]:
            try:
                return self._newest(self._key(path), parts)
            except ClientError as error:
                if str(error.response.get("Error", {}).get("Code")) in _NO_LIST:
                    return "", {}
                raise

        return s3.translated(look, f"listing unfinished uploads of {path}", self.settings.where, writing=True)

    def _newest(self, key: str, parts: list[Part]) -> tuple[str, Mapping[int, Mapping[str, Any]]]:
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.settings.bucket, Prefix=key)
        uploads = [item for page in pages for item in page.get("Uploads", []) if item["Key"] == key]
        for item in sorted(uploads, key=lambda item: item.get("Initiated", _OLDEST), reverse=True):
            if item.get("ChecksumAlgorithm", "CRC64NVME") == "CRC64NVME":
                there = publish.usable_parts(self._parts(key, item["UploadId"]), parts)
                if there:
                    return str(item["UploadId"]), there
        return "", {}

    def _parts(self, key: str, upload: str) -> list[Mapping[str, Any]]:
        pages = self.client.get_paginator("list_parts").paginate(Bucket=self.settings.bucket, Key=key, UploadId=upload)
        return [part for page in pages for part in page.get("Parts", [])]

    def _check(self, local: Local, digests: Digests) -> None:
        """The store's own word on what it has. A store without checksums is held to the size only: staging holds it to more."""
        head = s3.heads(self.client, self.settings, [local.path])[local.path] or {}
        remote = remote_of(head)
        if remote.size != local.size or remote.crc64nvme not in ("", digests.crc64nvme):
            raise S3Error(
                f"{self.settings.where}: {local.path} was written with {local.size} bytes and crc64nvme:"
                f"{digests.crc64nvme}, the store has {remote.size} bytes and crc64nvme:{remote.crc64nvme or '(none)'}. "
                "Cure: run again; if it stays so, the store damages what it is given"
            )

    def _key(self, path: str) -> str:
        return objects.object_key(self.settings.prefix, path)

    def _call(self, operation: str, method: str, **arguments: Any) -> dict[str, Any]:
        call = getattr(self.client, method)
        return s3.translated(
            lambda: dict(call(Bucket=self.settings.bucket, **arguments)), operation, self.settings.where, writing=True
        )


def encoded(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(8, "big")).decode()


def remote_of(head: Mapping[str, Any]) -> publish.Remote:
    """What a HEAD answer says of an object."""
    known = dict(digest.split(":", 1) for digest in objects.object_digests(head))
    return publish.Remote(int(head.get("ContentLength", -1)), known.get("crc64nvme", ""), str(head.get("ETag") or ""))


def _same(listed: Mapping[str, Any], piece: Piece) -> bool:
    """Whether this part of an unfinished upload has these bytes: the sizes are equal by now."""
    crc = listed.get("ChecksumCRC64NVME")
    if crc:
        return bool(crc == encoded(piece.crc64nvme))
    return str(listed.get("ETag", "")).strip('"') == piece.md5().hex()
