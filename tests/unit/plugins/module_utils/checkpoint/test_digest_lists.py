# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import digest_lists
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.digest_lists import Listed, ListError

MD5, SHA, BLOB = "ab" * 16, "cd" * 32, "ef" * 20


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("MD5SUMS.body", True),
        ("MD5SUMS", True),
        ("sub/SHA256SUMS", True),
        ("sha256sum.txt", True),
        ("checkpoint-files.json", True),
        ("SHA256SUMS.asc", False),
        ("SHA256SUMS.body.sig", False),
        ("config.json", False),
        ("MD5SUMS.body/model", False),
        ("my-MD5SUMS", False),
    ],
)
def test_lists_are_found_by_their_names(path, expected):
    assert digest_lists.is_list(path) is expected


@pytest.mark.parametrize(
    ("line", "name", "digest"),
    [
        (f"{MD5}  model-00003-of-00048.safetensors", "model-00003-of-00048.safetensors", f"md5:{MD5}"),
        (f"{SHA} *b", "b", f"sha256:{SHA}"),
        (f"{MD5.upper()}  ./b", "b", f"md5:{MD5}"),
        (f"MD5 (a (1)) = {MD5}", "a (1)", f"md5:{MD5}"),
        (f"SHA256 (b) = {SHA}", "b", f"sha256:{SHA}"),
        ("\\" + MD5 + "  a\\\\b", "a\\b", f"md5:{MD5}"),
        (f"{MD5}  with two  blanks", "with two  blanks", f"md5:{MD5}"),
    ],
)
def test_lines_of_the_usual_tools(line, name, digest):
    assert digest_lists.parse("MD5SUMS", f"# a comment\n\n{line}\r\n".encode()) == {name: Listed(digest, "MD5SUMS")}


def test_names_are_relative_to_the_list():
    assert list(digest_lists.parse("sub/MD5SUMS", f"{MD5}  a\n{MD5}  ../b\n".encode())) == ["sub/a", "b"]


ROWS = [
    {"rfilename": "config.json", "size": 3, "blobId": BLOB},
    {"rfilename": "model.safetensors", "size": 9, "blobId": BLOB, "lfs": {"sha256": SHA, "size": 9, "pointerSize": 1}},
]
TREE = [
    {"type": "directory", "oid": BLOB, "size": 0, "path": "sub"},
    {"type": "file", "oid": BLOB, "size": 3, "path": "config.json"},
    {"type": "file", "oid": BLOB, "size": 9, "path": "model.safetensors", "lfs": {"oid": f"sha256:{SHA}", "size": 9}},
]


@pytest.mark.parametrize("data", [{"siblings": ROWS}, {"files": ROWS, "revision": "x"}, TREE])
def test_inventories_of_hugging_face(data):
    name = "checkpoint-files.json"
    assert digest_lists.parse(name, json.dumps(data).encode()) == {
        "config.json": Listed(f"gitblob:{BLOB}", name, 3),
        "model.safetensors": Listed(f"sha256:{SHA}", name, 9),
    }


def test_a_row_without_a_digest_says_nothing():
    assert digest_lists.parse("checkpoint-files.json", b'{"siblings": [{"rfilename": "a"}]}') == {}


@pytest.mark.parametrize(
    ("path", "content", "text"),
    [
        ("MD5SUMS", b"<html>", "line 1 is '<html>'"),
        ("MD5SUMS", b"\xff\xfe", "not a list"),
        ("MD5SUMS", b"abcd  a", "line 1"),
        ("MD5SUMS", f"{MD5}  a\n{'0' * 32}  a\n".encode(), "names a twice"),
        ("checkpoint-files.json", b"{}", "no list of files"),
        ("checkpoint-files.json", b"[3]", "not a list"),
        ("checkpoint-files.json", b"{", "not a list"),
        ("checkpoint-files.json", b'[{"path": "a", "oid": "12"}]', "40 hexadecimal digits"),
        ("checkpoint-files.json", b'[{"oid": "12"}]', "not a list"),
    ],
)
def test_what_is_no_list_is_refused(path, content, text):
    with pytest.raises(ListError, match=text):
        digest_lists.parse(path, content)


def test_the_strongest_of_several_lists_counts():
    md5, sha = {"a": Listed(f"md5:{MD5}", "m"), "b": Listed(f"md5:{MD5}", "m")}, {"a": Listed(f"sha256:{SHA}", "s")}
    for order in ([md5, sha], [sha, md5]):
        chosen, problems = digest_lists.merge(order)
        assert (chosen["a"].where, chosen["b"].where, problems) == ("s", "m", [])


def test_lists_that_disagree_are_named():
    _chosen, problems = digest_lists.merge([{"a": Listed(f"md5:{MD5}", "m")}, {"a": Listed("md5:" + "0" * 32, "n")}])
    assert problems == [f"a has md5:{MD5} in m and md5:{'0' * 32} in n"]
