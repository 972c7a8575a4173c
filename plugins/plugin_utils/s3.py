# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The object store as the controller sees it: list, HEAD, sign. boto3 stays on the controller."""

from __future__ import annotations

import concurrent.futures
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError:
    boto3 = None  # type: ignore[assignment]

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, objects
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import (
    S3Error,
    Where,
    from_client_error,
    from_exception,
)

#: Requests in flight: HEADs are all latency, and the store answers them from memory.
PARALLEL = 16
_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """How to reach the store. None means what boto3 finds by itself. Secrets are left out of its repr."""

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str = "us-east-1"
    profile: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    addressing_style: str = "path"
    ca_bundle: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        names = ("endpoint_url", "profile", "access_key", "secret_key", "ca_bundle")
        return cls(
            bucket=options["bucket"],
            prefix=objects.clean_prefix(options.get("prefix") or ""),
            region=options.get("region") or "us-east-1",
            addressing_style=options.get("addressing_style") or "path",
            **{name: options.get(name) or None for name in names},
        )

    @property
    def where(self) -> Where:
        return Where(self.endpoint_url or "AWS", self.bucket, self.prefix, self.region)


@dataclass(frozen=True)
class Wish:
    """What shall be planned. files: relative paths, empty for everything below the prefix. revision: empty to compute."""

    name: str = ""
    files: tuple[str, ...] = ()
    require_checksum: bool = True
    revision: str = ""


def connect(settings: Settings) -> Any:
    """A client for the store. Raises S3Error; nothing is sent yet."""
    if boto3 is None:
        raise S3Error(
            "boto3 cannot be imported by the controller's Python; install it there: pip install 'boto3>=1.43'"
        )
    if settings.ca_bundle and not Path(settings.ca_bundle).is_file():
        raise S3Error(f"ca_bundle (checkpoint_ca_bundle) {settings.ca_bundle} is not a file on the controller")
    config = Config(
        signature_version="s3v4",
        connect_timeout=5,
        read_timeout=30,
        max_pool_connections=PARALLEL,
        retries={"mode": "standard", "total_max_attempts": 3},
        s3={"addressing_style": settings.addressing_style},  # type: ignore[typeddict-item]
        # boto3 1.36 and later otherwise send checksum headers that some stores do not know.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )

    def make() -> Any:
        session = boto3.Session(profile_name=settings.profile, region_name=settings.region)
        return session.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            verify=settings.ca_bundle,
            config=config,
        )

    return _translated(make, "connection", settings.where)


def plan(client: Any, settings: Settings, wish: Wish) -> manifest.Manifest:
    """The manifest of the checkpoint below the prefix. Raises S3Error or ManifestError, with everything that is wrong."""
    if wish.files:
        paths = list(wish.files)
        _refuse(settings, manifest.set_problems(paths))
    else:
        paths = _listed(client, settings)
        _refuse(settings, manifest.set_problems(paths))
        _refuse_holes(client, settings, paths)
    heads = _heads(client, settings, paths)
    _refuse_missing(client, settings, [path for path in paths if heads[path] is None])
    files = [_file(path, heads[path] or {}) for path in paths]
    unchecked = [file.path for file in files if file.algorithm == "etag"]
    if unchecked and wish.require_checksum:
        raise S3Error(
            f"{settings.where}: no usable checksum for {len(unchecked)} of {len(files)} files: {', '.join(unchecked)}. "
            "Cure: upload them with ChecksumAlgorithm=CRC64NVME (aws s3 cp --checksum-algorithm CRC64NVME), or set "
            "require_checksum (checkpoint_require_checksum) to false, after which only their sizes are verified"
        )
    name = wish.name or objects.default_name(settings.prefix, settings.bucket)
    return manifest.make(name, wish.revision, files)


def sign(client: Any, settings: Settings, paths: Iterable[str], expiry_s: int) -> dict[str, str]:
    """A presigned GET address by path. Signing is local, no request is made."""

    def signed() -> dict[str, str]:
        return {
            path: client.generate_presigned_url(
                "get_object",
                Params={"Bucket": settings.bucket, "Key": objects.object_key(settings.prefix, path)},
                ExpiresIn=expiry_s,
            )
            for path in paths
        }

    return _translated(signed, "signing", settings.where)


def _listed(client: Any, settings: Settings) -> list[str]:
    def keys() -> list[str]:
        start = objects.object_key(settings.prefix, "")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=settings.bucket, Prefix=start)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    paths = objects.relative_paths(settings.prefix, _translated(keys, "listing", settings.where))
    if not paths:
        raise S3Error(_nothing(settings))
    return paths


def _nothing(settings: Settings) -> str:
    return f"{settings.where}: there is no object below that prefix. Cure: correct prefix (checkpoint_prefix), or upload it"


def _refuse(settings: Settings, problems: list[str]) -> None:
    if problems:
        raise S3Error(
            f"{settings.where}: {len(problems)} file names cannot be staged: {'; '.join(problems)}. "
            "Cure: rename those objects, or list the wanted files in files (checkpoint_files)"
        )


def _heads(client: Any, settings: Settings, paths: list[str]) -> dict[str, dict[str, Any] | None]:
    """The HEAD answer by path, None for an object that is not there."""

    def head(path: str) -> dict[str, Any] | None:
        key = objects.object_key(settings.prefix, path)

        def ask() -> dict[str, Any] | None:
            try:
                return client.head_object(Bucket=settings.bucket, Key=key, ChecksumMode="ENABLED")
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code"))
                if code in ("404", "NoSuchKey"):
                    return None
                if (
                    code == "403"
                ):  # a refused HEAD has no body; a GET says whether it is the key, the signature or a right
                    client.get_object(Bucket=settings.bucket, Key=key, Range="bytes=0-0")["Body"].close()
                raise

        return _translated(ask, f"HEAD of {path}", settings.where)

    with concurrent.futures.ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return dict(zip(paths, pool.map(head, paths), strict=True))


def _refuse_missing(client: Any, settings: Settings, missing: list[str]) -> None:
    """Names what is missing; one listing tells a missing bucket or prefix, for which HEAD says 404 too, from files."""
    if not missing:
        return
    if len(missing) > 1 or not settings.prefix:
        try:
            _listed(client, settings)
        except S3Error as error:
            if "may not read" not in str(error):  # a key that may not list can still have the files named
                raise
    raise S3Error(
        f"{settings.where}: {len(missing)} wanted files are not there: {', '.join(missing)}. "
        "Cure: upload them, or take them out of files (checkpoint_files)"
    )


def _refuse_holes(client: Any, settings: Settings, paths: list[str]) -> None:
    """Every shard that an index names has to be there: a half-uploaded prefix lists without an error."""
    for path in (path for path in paths if posixpath.basename(path) == objects.INDEX):
        text = _read(client, settings, path)
        try:
            missing = sorted(set(objects.indexed_shards(path, text)) - set(paths))
        except ValueError as error:
            raise S3Error(f"{settings.where}: {error}. Cure: upload the checkpoint's own index") from error
        if missing:
            raise S3Error(
                f"{settings.where}: {path} names {len(missing)} files that are not there: "
                f"{', '.join(missing)}. Cure: upload them, or list the wanted files in files (checkpoint_files)"
            )


def _read(client: Any, settings: Settings, path: str) -> bytes:
    """A small object's bytes; the index of 48 shards is 14 MB."""

    def get() -> bytes:
        answer = client.get_object(Bucket=settings.bucket, Key=objects.object_key(settings.prefix, path))
        return bytes(answer["Body"].read())

    return _translated(get, f"reading {path}", settings.where)


def _file(path: str, head: Mapping[str, Any]) -> manifest.File:
    etag = str(head.get("ETag") or "")
    bare = etag.strip('"')
    return manifest.File(path, int(head["ContentLength"]), etag, objects.object_digest(head) or f"etag:{bare}")


def _translated(call: Callable[[], _T], operation: str, where: Where) -> _T:
    try:
        return call()
    except ClientError as error:
        raise from_client_error(dict(error.response), operation, where) from error
    except (BotoCoreError, ValueError) as error:  # ValueError is what boto3 says of an endpoint that is no address
        raise from_exception(error, operation, where) from error
