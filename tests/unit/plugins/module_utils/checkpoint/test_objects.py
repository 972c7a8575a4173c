# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import objects

CRC = base64.b64encode(bytes.fromhex("ae8b14860a799888")).decode()
SHA = base64.b64encode(bytes(range(32))).decode()
SHA_HEX = bytes(range(32)).hex()
MD5 = "5d41402abc4b2a76b9719d911017c592"


@pytest.mark.parametrize(
    ("head", "digests"),
    [
        ({"ChecksumCRC64NVME": CRC, "ChecksumType": "FULL_OBJECT"}, ["crc64nvme:ae8b14860a799888"]),
        # SeaweedFS gives no type for an object uploaded in one part.
        ({"ChecksumCRC64NVME": CRC, "ETag": f'"{MD5}"'}, ["crc64nvme:ae8b14860a799888"]),
        ({"ChecksumSHA256": SHA, "ChecksumCRC64NVME": CRC}, ["crc64nvme:ae8b14860a799888", f"sha256:{SHA_HEX}"]),
        ({"ChecksumSHA256": SHA, "ChecksumType": "FULL_OBJECT"}, [f"sha256:{SHA_HEX}"]),
        ({"ChecksumCRC32": "O0HJ5g=="}, ["crc32:3b41c9e6"]),
        ({"ChecksumCRC32C": "AAAAAQ==", "ChecksumCRC32": "O0HJ5g=="}, ["crc32c:00000001", "crc32:3b41c9e6"]),
        ({"ChecksumSHA256": SHA + "-3", "ChecksumType": "COMPOSITE"}, []),
        ({"ChecksumSHA256": SHA, "ChecksumType": "COMPOSITE"}, []),
        ({"ChecksumSHA256": SHA + "-3", "ETag": f'"{MD5}"'}, []),
        ({"ChecksumCRC32": "O0HJ5g==-2"}, []),
        ({"ChecksumCRC64NVME": "not base64!", "ETag": '"x"'}, []),
        ({"ChecksumCRC32": CRC}, []),
        ({}, []),
    ],
)
def test_object_digests(head, digests):
    assert list(objects.object_digests(head)) == digests


@pytest.mark.parametrize(
    ("head", "digest"),
    [
        ({"ETag": f'"{MD5}"'}, f"md5:{MD5}"),
        ({"ETag": MD5}, f"md5:{MD5}"),
        ({"ETag": f'"{MD5}"', "ServerSideEncryption": "AES256"}, f"md5:{MD5}"),
        ({"ETag": f'"{MD5}"', "ServerSideEncryption": "aws:kms"}, ""),
        ({"ETag": f'"{MD5}"', "SSECustomerAlgorithm": "AES256"}, ""),
        ({"ETag": f'"{MD5}-12"'}, ""),
        ({}, ""),
    ],
)
def test_etag_digest(head, digest):
    assert objects.etag_digest(head) == digest


@pytest.mark.parametrize("prefix", ["org/model", "/org/model/", "org/model/"])
def test_keys_of_a_prefix(prefix):
    assert objects.object_key(prefix, "a/b") == "org/model/a/b"
    keys = ["org/model/", "org/model/a", "org/model/sub/b", "org/model/sub/", "org/model-2/c"]
    assert objects.relative_paths(prefix, keys) == ["a", "sub/b"]


def test_keys_of_a_whole_bucket():
    assert objects.object_key("", "a") == "a"
    assert objects.relative_paths("", ["a", "b/c"]) == ["a", "b/c"]


@pytest.mark.parametrize(("prefix", "name"), [("org/model", "model"), ("/model/", "model"), ("", "bucket")])
def test_default_name(prefix, name):
    assert objects.default_name(prefix, "bucket") == name
