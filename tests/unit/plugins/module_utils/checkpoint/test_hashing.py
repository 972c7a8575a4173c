# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import hashing

DATA = bytes(range(256)) * 5000


@pytest.mark.parametrize(
    ("expected", "digest"),
    [
        # The check value of CRC-64/NVME is the one that the CRC catalogue gives for "123456789".
        ("crc64nvme:0", "crc64nvme:ae8b14860a799888"),
        ("md5:0", "md5:" + hashlib.md5(b"123456789").hexdigest()),
        ("sha256:0", "sha256:" + hashlib.sha256(b"123456789").hexdigest()),
        ("etag:as-it-was", "etag:as-it-was"),
    ],
)
def test_digests_in_pieces(expected, digest):
    computed = hashing.hasher(expected, checksums.crc64nvme)
    for piece in (b"1234", b"", b"56789"):
        computed.update(memoryview(piece))
    assert computed.digest() == digest


def test_crc_without_awscrt_is_an_error():
    with pytest.raises(LookupError, match="awscrt"):
        hashing.hasher("crc64nvme:0", None)


@pytest.mark.parametrize("expected", ["crc64nvme:0", "md5:0", "sha256:0"])
def test_a_file_at_rest_has_the_digest_of_its_bytes(tmp_path, monkeypatch, expected):
    monkeypatch.setattr(hashing, "WINDOW", 1 << 20)
    path = tmp_path / "file"
    path.write_bytes(DATA)
    computed = hashing.hasher(expected, checksums.crc64nvme)
    computed.update(memoryview(DATA))
    assert hashing.file_digest(path, expected, checksums.crc64nvme) == computed.digest()
