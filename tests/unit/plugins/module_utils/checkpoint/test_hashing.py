# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import hashing
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.rate import Bucket

DATA = bytes(range(256)) * 5000


@pytest.mark.parametrize(
    ("expected", "digest"),
    [
        # The check value of CRC-64/NVME is the one that the CRC catalogue gives for "123456789".
        ("crc64nvme:0", "crc64nvme:ae8b14860a799888"),
        # So are those of CRC-32C and CRC-32.
        ("crc32c:0", "crc32c:e3069283"),
        ("crc32:0", "crc32:cbf43926"),
        # What `printf 123456789 | git hash-object --stdin` says.
        ("gitblob:0", "gitblob:e2e107ac61ac259b87c544f6e7a4eb03422c6c21"),
        ("md5:0", "md5:" + hashlib.md5(b"123456789").hexdigest()),
        ("sha256:0", "sha256:" + hashlib.sha256(b"123456789").hexdigest()),
        ("etag:as-it-was", "etag:as-it-was"),
    ],
)
def test_digests_in_pieces(expected, digest):
    computed = hashing.hasher(expected, checksums.crc64nvme, 9)
    for piece in (b"1234", b"", b"56789"):
        computed.update(memoryview(piece))
    assert computed.digest() == digest


def test_crc_without_awscrt_is_an_error():
    with pytest.raises(LookupError, match="awscrt"):
        hashing.hasher("crc64nvme:0", None)


def test_a_crc_that_the_nodes_awscrt_lacks_is_an_error(monkeypatch):
    monkeypatch.setattr(hashing, "find_crc", lambda _algorithm: None)
    with pytest.raises(LookupError, match="crc32c needs awscrt"):
        hashing.hasher("crc32c:0", checksums.crc64nvme)


def test_a_git_blob_id_without_a_size_is_an_error():
    with pytest.raises(ValueError, match="size"):
        hashing.hasher("gitblob:0", None)


def test_leading_zeros_stay():
    computed = hashing.hasher("crc32:0", None)
    assert computed.digest() == "crc32:00000000"


@pytest.mark.parametrize("expected", ["crc64nvme:0", "crc32c:0", "crc32:0", "gitblob:0", "md5:0", "sha256:0"])
def test_a_file_at_rest_has_the_digest_of_its_bytes(tmp_path, monkeypatch, expected):
    monkeypatch.setattr(hashing, "WINDOW", 1 << 20)
    path = tmp_path / "file"
    path.write_bytes(DATA)
    computed = hashing.hasher(expected, checksums.crc64nvme, len(DATA))
    computed.update(memoryview(DATA))
    assert hashing.file_digest(path, expected, checksums.crc64nvme) == computed.digest()


def test_reading_a_file_is_held_to_a_rate(tmp_path):
    path, slept = tmp_path / "file", []
    path.write_bytes(DATA)
    hashing.file_digest(path, "md5:0", None, Bucket(len(DATA), lambda: 100.0, slept.append))
    assert max(slept) == pytest.approx(1.0)


def test_a_pipe_has_no_digest(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        hashing.file_digest(tmp_path / "pipe", "sha256:", None)
