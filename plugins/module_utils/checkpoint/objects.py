# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an object store says about objects, as pure functions: which digest counts, which keys belong to a prefix."""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: The file of a sharded safetensors checkpoint that says which shard holds which tensor (Hugging Face's name for it).
INDEX = "model.safetensors.index.json"
#: Algorithm, its key in an answer, bytes of its value: in the order in which they count.
_CHECKSUMS = (
    ("crc64nvme", "ChecksumCRC64NVME", 8),
    ("crc32c", "ChecksumCRC32C", 4),
    ("crc32", "ChecksumCRC32", 4),
    ("sha256", "ChecksumSHA256", 32),
)
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


def object_digests(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Every digest of the whole object in a HEAD answer, as ``algorithm:hex``, in the order in which they count.

    A composite checksum (``-N`` at its end, or ChecksumType COMPOSITE) is a checksum of checksums and says nothing of the bytes.
    """
    if head.get("ChecksumType") not in (None, "", "FULL_OBJECT"):
        return ()
    values = ((algorithm, _from_base64(str(head.get(key) or ""), size)) for algorithm, key, size in _CHECKSUMS)
    return tuple(f"{algorithm}:{value}" for algorithm, value in values if value)


def etag_digest(head: Mapping[str, Any]) -> str:
    """The MD5 that the ETag of a single-part, unencrypted object is, as ``md5:hex``; empty when it is none."""
    # With AES256 (SSE-S3) the ETag still is the MD5 of the plain bytes; with KMS or a customer key it is not.
    encrypted = head.get("ServerSideEncryption") not in (None, "", "AES256") or head.get("SSECustomerAlgorithm")
    match = _MD5.fullmatch(str(head.get("ETag") or ""))
    return f"md5:{match.group(1)}" if match and not encrypted else ""


def _from_base64(value: str, length: int) -> str:
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return raw.hex() if len(raw) == length else ""


def clean_prefix(prefix: str) -> str:
    """The prefix without leading and trailing slashes: keys of a store do not start with one."""
    return prefix.strip("/")


def object_key(prefix: str, path: str) -> str:
    base = clean_prefix(prefix)
    return f"{base}/{path}" if base else path


def relative_paths(prefix: str, keys: Iterable[str]) -> list[str]:
    """The paths below the prefix; "directory" objects (a key that ends in a slash) are no files."""
    start = object_key(prefix, "")
    return [key[len(start) :] for key in keys if key.startswith(start) and not key.endswith("/")]


def default_name(prefix: str, bucket: str) -> str:
    """The last component of the prefix, or the bucket when everything lies at its top."""
    return clean_prefix(prefix).rpartition("/")[2] or bucket


def indexed_shards(index_path: str, text: bytes) -> list[str]:
    """The paths of all shards that an index names, beside it. Raises ValueError when it is no index."""
    try:
        weights = json.loads(text)["weight_map"]
        names = sorted({str(name) for name in weights.values()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{index_path} is not an index: it has no weight_map of tensors to files") from error
    return [posixpath.join(posixpath.dirname(index_path), name) for name in names]
