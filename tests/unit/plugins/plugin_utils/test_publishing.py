# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publishing, from the directory to the manifest, into a store in memory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import publish, published
from ansible_collections.gb10.ring.plugins.plugin_utils import local_files, publishing, reading, s3
from ansible_collections.gb10.ring.plugins.plugin_utils.local_files import LocalError
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_s3 import FakeS3, refusal

MIB = 1 << 20
BIG = os.urandom(33 * MIB)  # three parts, the last one short
FILES = {"big": BIG, "small": b"12345", "sub/empty": b""}
SETTINGS = s3.Settings(bucket="models", prefix="org/tiny", endpoint_url="http://127.0.0.1:1")


@pytest.fixture
def source(tmp_path):
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


@pytest.fixture(params=[True, False], ids=["crc", "no-crc"])
def store(request):
    return FakeS3(keeps_crc=request.param)


def job(store, **more):
    return replace(publishing.Job(store, SETTINGS, "tiny", 16 * MIB, 2), **more)


def publish_all(store, source, **more):
    work = job(store, **more)
    seen = publishing.look(work, local_files.find(str(source)))
    return seen, publishing.apply(work, seen) if seen.changed else ""


def test_everything_arrives_and_the_manifest_comes_last(store, source):
    seen, text = publish_all(store, source)
    assert publish.reason(seen) == "3 files to upload (34.6 MB), manifest absent"
    assert {key: data for key, (data, _etag) in store.objects.items()} == {
        **{f"org/tiny/{path}": data for path, data in FILES.items()},
        "org/tiny/checkpoint-manifest.json": text.encode(),
    }
    assert store.calls[-1] == ("put_object", "org/tiny/checkpoint-manifest.json")
    known = published.parse(text.encode(), "m")
    assert known["big"].sha256 == hashlib.sha256(BIG).hexdigest()
    assert known["big"].crc64nvme == f"{checksums.crc64nvme(BIG):016x}"
    assert known["big"].chunks == tuple(
        f"{checksums.crc64nvme(BIG[start : start + 16 * MIB]):016x}" for start in range(0, len(BIG), 16 * MIB)
    )
    assert known["sub/empty"] == published.Digests("sub/empty", 0, hashlib.sha256().hexdigest(), "0" * 16, ())


def test_a_second_run_writes_nothing(store, source):
    _seen, text = publish_all(store, source)
    store.calls.clear()
    seen, _text = publish_all(store, source)
    assert not seen.changed and all(item.digests for item in seen.items)
    assert {method for method, _key in store.calls} == {"list_objects_v2", "head_object", "get_object"}
    assert (
        publishing.summary(job(store), seen, "")["revision"] == publishing.summary(job(store), seen, text)["revision"]
    )


def test_only_what_differs_is_uploaded(store, source):
    publish_all(store, source)
    (source / "small").write_bytes(b"54321")
    store.calls.clear()
    seen, text = publish_all(store, source)
    assert [(item.local.path, bool(item.was)) for item in seen.items] == [
        ("big", False),
        ("small", True),
        ("sub/empty", False),
    ]
    assert store.count("put_object") == 2 and store.count("upload_part") == 0
    assert published.parse(text.encode(), "m")["small"].sha256 == hashlib.sha256(b"54321").hexdigest()


def test_a_manifest_of_another_name_is_written_anew(store, source):
    publish_all(store, source)
    seen, text = publish_all(store, source, name="other")
    assert publish.reason(seen) == "3 files equal, manifest out of date" and '"name": "other"' in text


def test_an_upload_goes_on_where_it_broke_off(store, source):
    moved = []

    def break_off(_count, _earlier):
        if store.count("upload_part") == 2:
            raise S3Error("the cable was pulled")

    with pytest.raises(S3Error, match="the cable was pulled"):
        publish_all(store, source, moved=break_off, workers=1)
    assert "org/tiny/checkpoint-manifest.json" not in store.objects
    store.calls.clear()
    publish_all(store, source, moved=lambda count, earlier: moved.append((count, earlier)))
    assert store.count("upload_part") == 1 and store.count("create_multipart_upload") == 0
    assert sorted(moved)[-2:] == [(16 * MIB, True), (16 * MIB, True)]
    assert store.objects["org/tiny/big"][0] == BIG


def test_parts_of_other_bytes_are_sent_again(store, source):
    store.begin("org/tiny/big", {1: BIG[: 16 * MIB], 2: bytes(16 * MIB)})
    publish_all(store, source)
    assert store.count("upload_part") == 2 and store.objects["org/tiny/big"][0] == BIG


@pytest.mark.parametrize("parts", [{1: b"x" * 5}, {}, {9: BIG[: 16 * MIB]}])
def test_an_upload_that_was_cut_otherwise_is_left_alone(store, source, parts):
    upload = store.begin("org/tiny/big", parts)
    publish_all(store, source)
    assert store.count("upload_part") == 3 and upload in store.uploads


def test_a_key_that_may_not_list_uploads_starts_over(store, source):
    store.fails["list_multipart_uploads"] = [refusal("AccessDenied")]
    publish_all(store, source)
    assert store.objects["org/tiny/big"][0] == BIG


def test_a_key_that_may_not_write_is_told_what_it_lacks(store, source):
    store.fails["put_object"] = [refusal("AccessDenied"), refusal("AccessDenied")]
    with pytest.raises(S3Error, match=r"2 of 3 files could not be published.*manifest was not written") as caught:
        publish_all(store, source)
    assert "this key may not write there" in str(caught.value) and "s3:PutObject" in str(caught.value)
    assert "org/tiny/checkpoint-manifest.json" not in store.objects
    assert store.objects["org/tiny/big"][0] == BIG


def test_a_store_that_has_other_bytes_afterwards_gets_no_manifest(source):
    store = FakeS3()
    put = store.put_object

    def damage(**ask):
        put(**ask)
        store.objects[ask["Key"]] = (b"54321", '"e"')
        return {}

    store.put_object = damage
    with pytest.raises(S3Error, match="small was written with 5 bytes and crc64nvme:"):
        publish_all(store, source)
    assert "org/tiny/checkpoint-manifest.json" not in store.objects


def test_objects_of_nobody_are_named_and_stay(store, source):
    store.put_object(Key="org/tiny/old", Body=b"x")
    seen, _text = publish_all(store, source)
    assert seen.extra == ("old",) and "org/tiny/old" in store.objects


def test_a_file_that_changes_while_it_is_read_is_an_error(store, source):
    def touch(_count, _earlier):
        os.utime(source / "small", ns=(1, 1))

    with pytest.raises(S3Error, match="small was changed while it was read"):
        publish_all(store, source, moved=touch)


def test_a_file_that_got_shorter_is_an_error(source):
    local = next(file for file in local_files.find(str(source)) if file.path == "small")
    (source / "small").write_bytes(b"1")
    with pytest.raises(LocalError, match="it ends 4 bytes early"):
        list(reading.Reading(local).pieces(publish.parts(5, 16 * MIB)))


def test_a_blob_that_is_not_what_its_name_says_is_an_error(source):
    local = next(file for file in local_files.find(str(source)) if file.path == "small")
    read = reading.Reading(replace(local, sha256="0" * 64))
    list(read.pieces(publish.parts(5, 16 * MIB)))
    with pytest.raises(LocalError, match="download it again"):
        read.digests()


def test_without_awscrt_the_cure_is_named(source, monkeypatch):
    monkeypatch.setattr(reading, "find_crc", lambda _algorithm: None)
    local = local_files.find(str(source))[0]
    with pytest.raises(LocalError, match="pip install awscrt"):
        list(reading.Reading(local).pieces(publish.parts(local.size, 16 * MIB)))
