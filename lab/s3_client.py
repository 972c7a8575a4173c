# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/ctl s3`: make a prefix of the lab's bucket equal to a folder, or list one. Needs boto3 and awscrt (the .venv)."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import boto3.exceptions
import botocore.exceptions
from awscrt import checksums  # type: ignore[import-untyped]  # awscrt carries no types
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from .instance import Instance, LabError
from .procs import wait_for
from .s3 import BUCKET, ENDPOINT

# Objects above this are uploaded in parts, as any uploader does with the true sizes.
PART = 16 << 20
READY_SECONDS = 60.0
PROBE = "gb10-lab-probe"


@dataclass(frozen=True)
class Work:
    """What makes a prefix equal to a folder."""

    upload: tuple[str, ...]
    delete: tuple[str, ...]


def compare(local: Mapping[str, tuple[int, str]], remote: Mapping[str, tuple[int, str]]) -> Work:
    """Both sides are name -> (size, CRC-64/NVME in base64)."""
    upload = tuple(sorted(name for name, state in local.items() if remote.get(name) != state))
    return Work(upload, tuple(sorted(set(remote) - set(local))))


def connect(instance: Instance) -> Any:
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(instance.credentials)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    os.environ["AWS_CONFIG_FILE"] = os.devnull
    settings = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}, connect_timeout=5, read_timeout=60)
    return boto3.Session(profile_name="admin").client("s3", endpoint_url=ENDPOINT, config=settings)


def prepare(client: Any) -> None:
    """Wait until the server stores what it is given, and make the bucket: it takes requests before it has room for data."""

    def attempt() -> str | None:
        try:
            if BUCKET not in {entry["Name"] for entry in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key=PROBE, Body=b"x")
            client.delete_object(Bucket=BUCKET, Key=PROBE)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            return str(error)
        return None

    wait_for("the S3 server ready", attempt, READY_SECONDS)


def crc64nvme(path: Path) -> str:
    value = 0
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            value = checksums.crc64nvme(block, value)
    return base64.b64encode(value.to_bytes(8, "big")).decode()


def listing(client: Any, prefix: str) -> dict[str, int]:
    """name below the prefix -> size"""
    found: dict[str, int] = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/"):
        for entry in page.get("Contents", ()):
            found[entry["Key"].removeprefix(f"{prefix}/")] = entry["Size"]
    return found


def _head(client: Any, key: str) -> tuple[int, str]:
    answer = client.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    whole = answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
    return answer["ContentLength"], answer.get("ChecksumCRC64NVME", "") if whole else ""


def upload(instance: Instance, folder: Path, prefix: str) -> str:
    """Bring the prefix to the folder's content; returns what was done in a line."""
    if not folder.is_dir():
        raise LabError(f"{folder} is no folder")
    client = connect(instance)
    prepare(client)
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    with ThreadPoolExecutor(4) as pool:
        local = dict(
            zip(files, pool.map(lambda path: (path.stat().st_size, crc64nvme(path)), files.values()), strict=True)
        )
        names = list(listing(client, prefix))
        remote = dict(zip(names, pool.map(lambda name: _head(client, f"{prefix}/{name}"), names), strict=True))
        work = compare(local, remote)
        list(pool.map(lambda name: _put(client, files[name], f"{prefix}/{name}", local[name]), work.upload))
    for name in work.delete:
        client.delete_object(Bucket=BUCKET, Key=f"{prefix}/{name}")
    return f"s3://{BUCKET}/{prefix}: {len(files)} files, {len(work.upload)} uploaded, {len(work.delete)} removed"


def _put(client: Any, path: Path, key: str, expected: tuple[int, str]) -> None:
    transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=2)
    try:
        client.upload_file(str(path), BUCKET, key, ExtraArgs={"ChecksumAlgorithm": "CRC64NVME"}, Config=transfer)
    except (boto3.exceptions.Boto3Error, botocore.exceptions.BotoCoreError) as error:
        raise LabError(f"upload of {path}: {error}") from error
    found = _head(client, key)
    if found != expected:
        raise LabError(f"{key}: the server reports size and CRC-64/NVME {found}, the file has {expected}")


def show(instance: Instance, prefix: str) -> str:
    client = connect(instance)
    prepare(client)
    rows = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
        rows += [f"{entry['Size']:>12} {entry['Key']}" for entry in page.get("Contents", ())]
    return "\n".join(rows)
