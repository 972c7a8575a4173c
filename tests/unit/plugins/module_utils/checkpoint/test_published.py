# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import published
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, revision_of
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests, PublishedError

A = Digests("a", (16 << 20) + 1, "1" * 64, "2" * 16, ("3" * 16, "4" * 16))
B = Digests("sub/b", 0, "5" * 64, "0" * 16, ())


def test_what_is_written_is_read():
    assert published.parse(published.render("tiny", [B, A]).encode(), "m") == {"a": A, "sub/b": B}


def test_the_order_of_the_files_makes_no_difference():
    assert published.render("tiny", [B, A]) == published.render("tiny", [A, B])


def test_the_schema():
    data = json.loads(published.render("tiny", [A]))
    assert {key: data[key] for key in data if key not in ("files", "revision")} == {
        "format": "gb10.ring checkpoint manifest",
        "version": 1,
        "name": "tiny",
        "bytes": (16 << 20) + 1,
        "chunk_size": 16777216,
    }
    assert data["files"] == [
        {"path": "a", "size": A.size, "sha256": A.sha256, "crc64nvme": A.crc64nvme, "chunks": list(A.chunks)}
    ]
    # The name that a plan of these files gets.
    assert data["revision"] == revision_of([File("a", A.size, "", f"crc64nvme:{A.crc64nvme}")])


def changed(**changes):
    return json.dumps({**json.loads(published.render("tiny", [A])), **changes}).encode()


def with_file(**changes):
    file = json.loads(published.render("tiny", [A]))["files"][0]
    return changed(files=[{**file, **changes}])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a manifest"),
        (b"[]", "not a manifest"),
        (b"\xff", "not a manifest"),
        (changed(format="other"), "its format is 'other'"),
        (changed(version=2), "is of version 2"),
        (changed(chunk_size=1), "chunks of 1 bytes"),
        (changed(files=[{}]), "not a manifest"),
        (with_file(path="../a"), "component"),
        (with_file(sha256="1"), "64 hexadecimal digits"),
        (with_file(crc64nvme=""), "16 hexadecimal digits"),
        (with_file(size=-1), "-1 is not a size"),
        (with_file(chunks=["3" * 16]), "1 chunk checksums for 16777217 bytes instead of 2"),
    ],
)
def test_what_cannot_be_used_is_refused(content, text):
    with pytest.raises(PublishedError, match=text):
        published.parse(content, "m")
