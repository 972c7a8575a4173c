# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, ManifestError

CRC = "crc64nvme:" + "0" * 16
MD5 = "md5:" + "a" * 32


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("config.json", ""),
        ("sub/deeper/model-00001-of-00048.safetensors", ""),
        ("modèle.json", ""),
        ("..data", ""),
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("../x", "component"),
        ("a/../b", "component"),
        ("a//b", "component"),
        ("a/", "component"),
        ("./a", "component"),
        ("a\\b", "backslash"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("x" * 250, "longer"),
        ("a.partial", ".partial"),
        ("\ud800", "UTF-8"),
        ("sub/a\udcff.json", "UTF-8"),
    ],
)
def test_path_problem(path, reason):
    found = manifest.path_problem(path)
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("paths", "count", "text"),
    [
        (["a", "b/c", "b/d"], 0, ""),
        (["a", "a"], 1, "listed twice"),
        (["a", "a/b"], 1, "'a' is a file and the directory of 'a/b'"),
        (["../a", "/b", "c"], 2, "absolute"),
    ],
)
def test_set_problems(paths, count, text):
    problems = manifest.set_problems(paths)
    assert len(problems) == count
    assert text in "; ".join(problems)


@pytest.mark.parametrize("name", ["tiny", "DeepSeek-V4.1-Flash_EXL3", "0"])
def test_usable_names(name):
    assert manifest.name_problem(name) == ""


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "-rf", "x" * 201, "a\n"])
def test_unusable_names(name):
    assert "not usable as a directory name" in manifest.name_problem(name)


@pytest.mark.parametrize(
    ("digest", "problem"),
    [
        (CRC, ""),
        ("sha256:" + "0f" * 32, ""),
        (MD5, ""),
        ("etag:whatever-3", ""),
        ("etag:", "empty"),
        ("crc32:00000000", ""),
        ("crc32c:0000000", "hexadecimal"),
        ("gitblob:" + "0" * 40, ""),
        ("sha1:" + "0" * 40, "no known algorithm"),
        ("md5:" + "A" * 32, "hexadecimal"),
        ("md5:00", "hexadecimal"),
        ("", "no known algorithm"),
    ],
)
def test_digest_problem(digest, problem):
    found = manifest.digest_problem(digest)
    assert problem in found
    assert bool(found) == bool(problem)


def test_revision_follows_from_contents_only():
    one = [File("a", 1, '"x"', CRC), File("b", 2, '"y"', MD5)]
    other = [File("b", 2, '"other etag"', MD5), File("a", 1, '"z"', CRC)]
    assert manifest.revision_of(one) == manifest.revision_of(other)
    # The name is a contract with receipts on disk: it may not change between releases.
    assert manifest.revision_of(one) == "b5984c821693917b"


@pytest.mark.parametrize(
    "changed", [File("a2", 1, "", CRC), File("a", 2, "", CRC), File("a", 1, "", "crc64nvme:" + "1" * 16)]
)
def test_revision_differs_with_path_size_or_digest(changed):
    assert manifest.revision_of([File("a", 1, "", CRC)]) != manifest.revision_of([changed])


def test_manifest_survives_the_way_through_a_variable():
    made = manifest.make("tiny", "", [File("b", 2, '"y"', MD5), File("a", 1, '"x"', CRC)])
    assert manifest.parse(made.to_dict()) == made
    assert [file.path for file in made.files] == ["a", "b"]
    assert made.bytes == 3
    assert made.by_path()["b"].algorithm == "md5"


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (16 << 20, 1), ((16 << 20) + 1, 2), (160 << 20, 10)])
def test_chunk_count(size, count):
    assert manifest.chunk_count(size) == count


def test_chunks_are_run_together_on_the_way_through_a_variable():
    chunks = ("0123456789abcdef", "00000000000000ff")
    made = manifest.make("tiny", "", [File("a", (16 << 20) + 1, "", CRC, "checkpoint-manifest.json", chunks)])
    row = made.to_dict()["files"][0]
    assert row["chunks"] == "0123456789abcdef00000000000000ff" and row["digest_source"] == "checkpoint-manifest.json"
    assert manifest.parse(made.to_dict()) == made


def test_what_is_known_of_chunks_does_not_change_the_revision():
    bare = File("a", 1, "", CRC)
    assert manifest.revision_of([bare]) == manifest.revision_of([File("a", 1, "", CRC, "x", ("0" * 16,))])


@pytest.mark.parametrize(
    ("size", "chunks", "text"),
    [
        (1, ("0" * 16,), ""),
        (1, ("0" * 16,) * 2, "2 chunk checksums for 1 bytes instead of 1"),
        (1, ("0" * 15,), "not 16 hexadecimal digits"),
        (1, ("G" * 16,), "not 16 hexadecimal digits"),
    ],
)
def test_chunks_problem(size, chunks, text):
    found = manifest.chunks_problem(size, chunks)
    assert text in found and bool(found) == bool(text)


def test_wrong_chunks_are_a_problem_of_the_manifest():
    with pytest.raises(ManifestError, match="a: 2 chunk checksums for 1 bytes"):
        manifest.make("tiny", "", [File("a", 1, "", CRC, "", ("0" * 16,) * 2)])


def test_every_problem_of_a_manifest_is_named_at_once():
    with pytest.raises(ManifestError) as caught:
        manifest.make("a/b", "..", [File("../x", 1, "", CRC), File("y", -1, "", "sha1:0")])
    for text in ("'a/b'", "'..'", "'../x'", "sha1", "-1 is not a size"):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "data", [{}, {"name": "n", "revision": "r"}, {"name": "n", "revision": "r", "files": [{}]}, None]
)
def test_a_plan_of_another_shape_is_refused(data):
    with pytest.raises(ManifestError, match="option plan is not what"):
        manifest.parse(data)


def test_an_empty_manifest_is_refused():
    with pytest.raises(ManifestError, match="no files"):
        manifest.make("tiny", "", [])
