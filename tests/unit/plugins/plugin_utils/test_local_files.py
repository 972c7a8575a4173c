# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os

import pytest

from ansible_collections.gb10.ring.plugins.plugin_utils.local_files import LocalError, find


def write(directory, **files):
    for path, text in files.items():
        target = directory / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return str(directory)


def paths(found):
    return [file.path for file in found]


@pytest.fixture
def cache(tmp_path):
    """A repository of a Hugging Face cache with one snapshot, as huggingface_hub lays it out."""
    repository = tmp_path / "models--org--tiny"
    snapshot = repository / "snapshots/0123abc"
    (snapshot / "sub").mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name, text, large in (("config.json", "{}", False), ("sub/model", "weights", True)):
        blob = repository / "blobs" / (hashlib.sha256(text.encode()).hexdigest() if large else "0" * 40)
        blob.write_text(text)
        (snapshot / name).symlink_to(os.path.relpath(blob, (snapshot / name).parent))
    return repository


def test_a_plain_directory(tmp_path):
    source = write(tmp_path, b="12345", sub__a="1", **{"checkpoint-manifest.json": "ours", ".cache__x": "hidden"})
    (tmp_path / ".gitattributes").write_text("hidden")
    found = find(source)
    assert [(file.path, file.size, file.sha256) for file in found] == [("b", 5, ""), ("sub/a", 1, "")]
    assert found[0].place == str(tmp_path / "b")


@pytest.mark.parametrize("where", ["", "snapshots/0123abc"])
def test_a_hugging_face_cache(cache, where):
    found = find(str(cache / where))
    assert paths(found) == ["config.json", "sub/model"]
    assert found[0].place == str(cache / "blobs" / ("0" * 40)) and found[0].sha256 == ""
    assert found[1].sha256 == hashlib.sha256(b"weights").hexdigest()


def test_the_snapshot_is_that_of_main_or_the_named_one(cache):
    write(cache / "snapshots/4567def", other="x")
    with pytest.raises(LocalError, match="has no refs/main, its snapshots are: 0123abc, 4567def"):
        find(str(cache))
    assert paths(find(str(cache), "4567def")) == ["other"]
    write(cache / "refs", main="0123abc\n")
    assert paths(find(str(cache))) == ["config.json", "sub/model"]
    with pytest.raises(LocalError, match="has no snapshot ffff"):
        find(str(cache), "ffff")


def test_a_revision_of_a_plain_directory_is_refused(tmp_path):
    with pytest.raises(LocalError, match="is no repository of a Hugging Face cache"):
        find(write(tmp_path, a="x"), "0123abc")


def test_everything_that_is_wrong_is_named(tmp_path):
    index = json.dumps({"weight_map": {"t": "model-1.safetensors", "u": "model-2.safetensors"}})
    source = write(tmp_path, **{"model.safetensors.index.json": index, "model-1.safetensors": "x", "c.incomplete": "x"})
    (tmp_path / "dangling").symlink_to("../../blobs/gone")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LocalError) as caught:
        find(source)
    for text in (
        "c.incomplete is an unfinished download",
        "dangling is a link to ../../blobs/gone, which is not there",
        "pipe is not a file",
        "names 1 files that are not there: model-2.safetensors",
        "checkpoint_files",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("files", "text"),
    [(["a", "missing"], "missing is not there"), (["a", "broken"], "broken is a link to nowhere")],
)
def test_wanted_files_have_to_be_there(tmp_path, files, text):
    source = write(tmp_path, a="x", b="y")
    (tmp_path / "broken").symlink_to("nowhere")
    assert paths(find(source, "", ["a"])) == ["a"]
    with pytest.raises(LocalError, match=text) as caught:
        find(source, "", files)
    assert str(caught.value).count(files[1]) == 1


def test_a_link_into_its_own_tree_ends(tmp_path):
    source = write(tmp_path, a="x")
    (tmp_path / "loop").symlink_to(".")
    with pytest.raises(LocalError, match="loop is a link into its own tree"):
        find(source)


def test_an_index_that_is_none_is_named(tmp_path):
    with pytest.raises(LocalError, match="is not an index"):
        find(write(tmp_path, **{"model.safetensors.index.json": "{"}))


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_source_that_is_no_directory(tmp_path, name):
    write(tmp_path, file="x")
    with pytest.raises(LocalError, match="is not a directory on the controller"):
        find(str(tmp_path / name))


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(LocalError, match="holds no files"):
        find(str(tmp_path))
