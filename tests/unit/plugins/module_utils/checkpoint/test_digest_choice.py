# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.digest_choice import (
    KINDS,
    Claim,
    choose,
    disagreements,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File

CRC, SHA, MD5 = "crc64nvme:" + "1" * 16, "sha256:" + "2" * 64, "md5:" + "3" * 32
CHUNKS = ("4" * 16,)
MANIFEST = Claim("manifest", "checkpoint-manifest.json", (CRC, SHA), 5, CHUNKS)
LIST = Claim("list", "MD5SUMS.body", (MD5,))
OBJECT = Claim("object", "object checksum", (CRC,))
NOTHING = Claim("object", "object checksum", ())
ETAG = Claim("etag", "object ETag", (MD5,))


@pytest.mark.parametrize(
    ("claims", "kinds", "digest", "source"),
    [
        ([ETAG, OBJECT, LIST, MANIFEST], KINDS, CRC, "checkpoint-manifest.json"),
        ([ETAG, OBJECT, LIST], KINDS, MD5, "MD5SUMS.body"),
        ([ETAG, OBJECT], KINDS, CRC, "object checksum"),
        ([ETAG, NOTHING], KINDS, MD5, "object ETag"),
        ([NOTHING], KINDS, "etag:x-2", "none"),
        ([], KINDS, "etag:x-2", "none"),
        # The order and the choice are the user's.
        ([LIST, OBJECT], ("object", "list"), CRC, "object checksum"),
        ([LIST, ETAG], ("object",), "etag:x-2", "none"),
    ],
)
def test_the_first_source_that_has_a_digest_counts(claims, kinds, digest, source):
    file = choose("a", 5, '"x-2"', claims, kinds)
    assert (file.digest, file.digest_source) == (digest, source)
    assert file.chunks == (CHUNKS if MANIFEST in claims else ())


def test_chunks_come_along_whatever_the_digest_is_from():
    assert choose("a", 5, "", [LIST, MANIFEST], ("list", "manifest")) == File("a", 5, "", MD5, "MD5SUMS.body", CHUNKS)


@pytest.mark.parametrize(
    ("claims", "problems"),
    [
        ([MANIFEST, LIST, OBJECT, ETAG], []),
        ([Claim("list", "l", (MD5,), 6)], ["a has 5 bytes, l says 6"]),
        (
            [MANIFEST, Claim("object", "o", ("crc64nvme:" + "9" * 16,))],
            [f"a has {CRC} in checkpoint-manifest.json and crc64nvme:{'9' * 16} in o"],
        ),
        ([LIST, Claim("etag", "e", ("md5:" + "9" * 32,))], [f"a has {MD5} in MD5SUMS.body and md5:{'9' * 32} in e"]),
    ],
)
def test_contradictions(claims, problems):
    assert disagreements("a", 5, claims) == problems
