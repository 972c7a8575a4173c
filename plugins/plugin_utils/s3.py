# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The object store as the controller sees it: list, HEAD, sign. boto3 stays on the controller."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

try:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError:
    boto3 = None

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import objects
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
    """How to reach the store. None means what boto3 finds by itself. Secrets are left out of its repr.

    node_endpoint_url: the same store as the nodes reach it. anonymous: requests and addresses without a signature.
    """

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str = "us-east-1"
    profile: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    addressing_style: str = "path"
    ca_bundle: str | None = None
    node_endpoint_url: str | None = None
    anonymous: bool = False
    connect_timeout_s: int = 5
    read_timeout_s: int = 30

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        names = ("endpoint_url", "profile", "access_key", "secret_key", "ca_bundle", "node_endpoint_url")
        numbers = ("connect_timeout_s", "read_timeout_s")
        return cls(
            bucket=options["bucket"],
            prefix=objects.clean_prefix(options.get("prefix") or ""),
            region=options.get("region") or "us-east-1",
            addressing_style=options.get("addressing_style") or "path",
            anonymous=bool(options.get("anonymous")),
            **{name: options.get(name) or None for name in names},
            **{name: options[name] for name in numbers if options.get(name)},
        )

    @property
    def for_nodes(self) -> Settings:
        """The same, with the address that nodes use: what addresses for them are signed with."""
        return replace(self, endpoint_url=self.node_endpoint_url or self.endpoint_url)

    @property
    def where(self) -> Where:
        return Where(self.endpoint_url or "AWS", self.bucket, self.prefix, self.region)


def connect(settings: Settings) -> Any:
    """A client for the store. Raises S3Error; nothing is sent yet."""
    if boto3 is None:
        raise S3Error(
            "boto3 cannot be imported by the controller's Python; install it there: pip install 'boto3>=1.43'"
        )
    if settings.ca_bundle and not Path(settings.ca_bundle).is_file():
        raise S3Error(f"ca_bundle (checkpoint_ca_bundle) {settings.ca_bundle} is not a file on the controller")
    if settings.anonymous and (settings.profile or settings.access_key):
        raise S3Error(
            "anonymous (checkpoint_anonymous) is true and credentials are given too; leave out profile and access_key "
            "(checkpoint_s3_profile, checkpoint_s3_access_key), or set anonymous to false"
        )
    config = Config(
        signature_version=UNSIGNED if settings.anonymous else "s3v4",
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        max_pool_connections=PARALLEL,
        retries={"mode": "standard", "total_max_attempts": 3},
        s3={"addressing_style": settings.addressing_style},
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

    return translated(make, "connection", settings.where)


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

    return translated(signed, "signing", settings.where)


def listed(client: Any, settings: Settings) -> list[str]:
    """The paths of all files below the prefix, sorted as the store sorts them; never empty. Raises S3Error."""

    def keys() -> list[str]:
        start = objects.object_key(settings.prefix, "")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=settings.bucket, Prefix=start)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    paths = objects.relative_paths(settings.prefix, translated(keys, "listing", settings.where))
    if not paths:
        raise S3Error(
            f"{settings.where}: there is no object below that prefix. Cure: correct prefix (checkpoint_prefix), or upload it"
        )
    return paths


def heads(client: Any, settings: Settings, paths: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """The HEAD answer by path, None for an object that is not there. Raises S3Error."""

    def head(path: str) -> dict[str, Any] | None:
        return translated(lambda: _head(client, settings, path), f"HEAD of {path}", settings.where)

    wanted = list(paths)
    with concurrent.futures.ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return dict(zip(wanted, pool.map(head, wanted), strict=True))


def _head(client: Any, settings: Settings, path: str) -> dict[str, Any] | None:
    key = objects.object_key(settings.prefix, path)
    try:
        return dict(client.head_object(Bucket=settings.bucket, Key=key, ChecksumMode="ENABLED"))
    except ClientError as error:
        code = _code(error)
        if code in ("404", "NoSuchKey"):
            return None
        if code == "403":  # a refused HEAD has no body; a GET says whether it is the key, the signature or a right
            client.get_object(Bucket=settings.bucket, Key=key, Range="bytes=0-0")["Body"].close()
        raise


def read(client: Any, settings: Settings, path: str) -> bytes:
    """A small object's bytes; the index of 48 shards is 14 MB. Raises S3Error."""
    return translated(lambda: _get(client, settings, path), f"reading {path}", settings.where)


def read_if_there(client: Any, settings: Settings, path: str) -> bytes | None:
    """The same, or None when there is no such object: for which a key that may not list gets 403 instead of 404."""

    def get() -> bytes | None:
        try:
            return _get(client, settings, path)
        except ClientError as error:
            if _code(error) in ("404", "NoSuchKey", "403", "AccessDenied"):
                return None
            raise

    return translated(get, f"reading {path}", settings.where)


def _get(client: Any, settings: Settings, path: str) -> bytes:
    answer = client.get_object(Bucket=settings.bucket, Key=objects.object_key(settings.prefix, path))
    with contextlib.closing(answer["Body"]) as body:
        return bytes(body.read())


def read_part(client: Any, settings: Settings, path: str, span: tuple[int, int], etag: str) -> bytes:
    """Bytes [start, end) of an object that still has this ETag. Raises S3Error."""
    start, end = span

    def get() -> bytes:
        key = objects.object_key(settings.prefix, path)
        pin = {"IfMatch": etag} if etag else {}
        answer = client.get_object(Bucket=settings.bucket, Key=key, Range=f"bytes={start}-{end - 1}", **pin)
        with contextlib.closing(answer["Body"]) as body:
            return bytes(body.read(end - start))

    try:
        data = translated(get, f"reading {path}", settings.where)
    except S3Error as error:
        cause = error.__cause__
        if isinstance(cause, ClientError) and _code(cause) in ("412", "PreconditionFailed"):
            raise S3Error(f"{settings.where}: {path} was replaced since it was planned. Cure: run again") from error
        raise
    if len(data) != end - start:
        raise S3Error(
            f"{settings.where}: {path} has {start + len(data)} bytes, expected at least {end}. Cure: run again"
        )
    return data


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code"))


def translated(call: Callable[[], _T], operation: str, where: Where, writing: bool = False) -> _T:
    """What the call returns. Raises S3Error for every expected failure of the store or the way to it."""
    try:
        return call()
    except ClientError as error:
        raise from_client_error(dict(error.response), operation, where, writing) from error
    except (BotoCoreError, ValueError) as error:  # ValueError is what boto3 says of an endpoint that is no address
        raise from_exception(error, operation, where) from error
