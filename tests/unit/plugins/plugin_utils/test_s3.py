# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the object store, with botocore's Stubber in place of a store."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import pytest
from botocore.stub import Stubber

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import ManifestError
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

SETTINGS = s3.Settings(
    bucket="models",
    prefix="org/tiny",
    endpoint_url="http://127.0.0.1:1",
    access_key="access-key-id",
    secret_key="very-secret",
)
CRC = base64.b64encode(bytes(8)).decode()


@pytest.fixture
def client():
    return s3.connect(SETTINGS)


@pytest.fixture
def stub(client, monkeypatch):
    monkeypatch.setattr(s3, "PARALLEL", 1)  # the stub answers in the order in which it was told
    with Stubber(client) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def listing(stub, *keys, truncated=False, **expected):
    answer = {"Contents": [{"Key": key} for key in keys], "IsTruncated": truncated}
    if truncated:
        answer["NextContinuationToken"] = "more"
    stub.add_response("list_objects_v2", answer, {"Bucket": "models", "Prefix": "org/tiny/", **expected})


def head(stub, path, size=5, etag='"e"', **checksums):
    stub.add_response(
        "head_object",
        {"ContentLength": size, "ETag": etag, **checksums},
        {"Bucket": "models", "Key": f"org/tiny/{path}", "ChecksumMode": "ENABLED"},
    )


def missing(stub, code="404", status=404):
    stub.add_client_error("head_object", code, "", status)


def test_a_whole_prefix_over_several_pages(client, stub):
    listing(stub, "org/tiny/", "org/tiny/b", truncated=True)
    listing(stub, "org/tiny/sub/a", ContinuationToken="more")
    head(stub, "b", ChecksumCRC64NVME=CRC)
    head(stub, "sub/a", etag='"5d41402abc4b2a76b9719d911017c592"')
    planned = s3.plan(client, SETTINGS, s3.Wish())
    assert planned.name == "tiny" and len(planned.revision) == 16
    assert [(file.path, file.size, file.digest) for file in planned.files] == [
        ("b", 5, "crc64nvme:0000000000000000"),
        ("sub/a", 5, "md5:5d41402abc4b2a76b9719d911017c592"),
    ]
    assert planned.files[0].etag == '"e"'


def test_a_list_of_files_needs_no_listing(client, stub):
    head(stub, "b", ChecksumCRC64NVME=CRC)
    planned = s3.plan(client, SETTINGS, s3.Wish(name="other", files=("b",), revision="v1"))
    assert (planned.name, planned.revision, len(planned.files)) == ("other", "v1", 1)


def test_all_missing_files_are_named(client, stub):
    head(stub, "a", ChecksumCRC64NVME=CRC)
    missing(stub)
    missing(stub, "NoSuchKey")
    listing(stub, "org/tiny/a")
    with pytest.raises(S3Error, match="2 wanted files are not there: b, c") as caught:
        s3.plan(client, SETTINGS, s3.Wish(files=("a", "b", "c")))
    assert "checkpoint_files" in str(caught.value)


def test_a_key_that_may_not_list_still_has_missing_files_named(client, stub):
    missing(stub)
    missing(stub)
    stub.add_client_error("list_objects_v2", "AccessDenied", "", 403)
    with pytest.raises(S3Error, match="2 wanted files are not there: a, b"):
        s3.plan(client, SETTINGS, s3.Wish(files=("a", "b")))


def test_a_missing_bucket_is_told_from_missing_files(client, stub):
    missing(stub)
    missing(stub)
    stub.add_client_error("list_objects_v2", "NoSuchBucket", "", 404)
    with pytest.raises(S3Error, match="the bucket does not exist"):
        s3.plan(client, SETTINGS, s3.Wish(files=("a", "b")))


def index(stub, text):
    expected = {"Bucket": "models", "Key": "org/tiny/model.safetensors.index.json"}
    stub.add_response("get_object", {"Body": io.BytesIO(text)}, expected)


def test_shards_that_the_index_names_and_the_prefix_lacks_are_all_named(client, stub):
    listing(stub, "org/tiny/a.safetensors", "org/tiny/model.safetensors.index.json")
    index(stub, json.dumps({"weight_map": {"t": "a.safetensors", "u": "b.safetensors", "v": "c.safetensors"}}).encode())
    with pytest.raises(S3Error, match=r"names 2 files that are not there: b\.safetensors, c\.safetensors"):
        s3.plan(client, SETTINGS, s3.Wish())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"weight_map": 3}', b"\xff"])
def test_an_index_that_is_none_is_refused(client, stub, text):
    listing(stub, "org/tiny/model.safetensors.index.json")
    index(stub, text)
    with pytest.raises(S3Error, match=r"model\.safetensors\.index\.json is not an index"):
        s3.plan(client, SETTINGS, s3.Wish())


def test_an_empty_prefix_is_named(client, stub):
    listing(stub, "org/tiny/")
    with pytest.raises(S3Error, match=r"no object below that prefix.*checkpoint_prefix"):
        s3.plan(client, SETTINGS, s3.Wish())


def test_files_without_a_checksum_are_all_named(client, stub):
    listing(stub, "org/tiny/a", "org/tiny/b", "org/tiny/c")
    for path, etag in (("a", '"x-2"'), ("b", '"5d41402abc4b2a76b9719d911017c592"'), ("c", '"y-3"')):
        head(stub, path, etag=etag)
    with pytest.raises(S3Error, match="no usable checksum for 2 of 3 files: a, c") as caught:
        s3.plan(client, SETTINGS, s3.Wish())
    assert "--checksum-algorithm CRC64NVME" in str(caught.value) and "checkpoint_require_checksum" in str(caught.value)


def test_without_required_checksums_the_etag_pins_the_file(client, stub):
    listing(stub, "org/tiny/a")
    head(stub, "a", etag='"x-2"')
    assert s3.plan(client, SETTINGS, s3.Wish(require_checksum=False)).files[0].digest == "etag:x-2"


@pytest.mark.parametrize("keys", [("org/tiny/../../etc/passwd",), ("org/tiny//absolute",), ("org/tiny/a\\b",)])
def test_keys_that_would_escape_are_refused(client, stub, keys):
    listing(stub, *keys)
    with pytest.raises(S3Error, match="1 file names cannot be staged"):
        s3.plan(client, SETTINGS, s3.Wish())


def test_wanted_files_that_would_escape_are_refused_unasked(client, stub):
    with pytest.raises(S3Error, match=r"2 file names cannot be staged: '\.\./a' .*; '/b' is absolute"):
        s3.plan(client, SETTINGS, s3.Wish(files=("../a", "/b", "c")))


def test_a_name_that_is_no_directory_is_refused(client, stub):
    head(stub, "a", ChecksumCRC64NVME=CRC)
    with pytest.raises(ManifestError, match="not usable as a directory name"):
        s3.plan(client, SETTINGS, s3.Wish(name="../x", files=("a",)))


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("InvalidAccessKeyId", 403, "does not know this access key"),
        ("SignatureDoesNotMatch", 403, "the signature is wrong"),
        ("AccessDenied", 403, "may not read"),
        ("NoSuchBucket", 404, "the bucket does not exist"),
    ],
)
def test_refusals_of_the_listing(client, stub, code, status, text):
    stub.add_client_error("list_objects_v2", code, "", status)
    with pytest.raises(S3Error, match=text) as caught:
        s3.plan(client, SETTINGS, s3.Wish())
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("AccessDenied", "may not read"),
        ("SignatureDoesNotMatch", "the secret key does not belong to the access key"),
        ("InvalidAccessKeyId", "does not know this access key"),
    ],
)
def test_a_head_that_is_refused_is_explained_by_a_get(client, stub, code, text):
    stub.add_client_error("head_object", "403", "", 403)
    stub.add_client_error("get_object", code, "", 403)
    with pytest.raises(S3Error, match=rf"HEAD of a of s3://models/org/tiny .*{text}"):
        s3.plan(client, SETTINGS, s3.Wish(files=("a",)))


def test_an_endpoint_that_is_not_there_is_named(client):
    with pytest.raises(S3Error, match="the endpoint cannot be reached"):
        s3.plan(client, SETTINGS, s3.Wish())


def test_signed_addresses_hold_path_expiry_and_no_secret(client):
    urls = s3.sign(client, SETTINGS, ["sub/a b"], 600)
    url = urls["sub/a b"]
    assert url.startswith("http://127.0.0.1:1/models/org/tiny/sub/a%20b?")
    assert "X-Amz-Expires=600" in url and "X-Amz-SignedHeaders=host" in url
    assert "very-secret" not in url


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"endpoint_url": "foo"}, "the endpoint is no address"),
        ({"profile": "there-is-no-such-profile"}, "no such profile"),
        ({"ca_bundle": "/nowhere.pem"}, "ca_bundle .* is not a file on the controller"),
    ],
)
def test_settings_that_cannot_work(changes, text):
    with pytest.raises(S3Error, match=text):
        s3.connect(replace(SETTINGS, **changes))


def test_without_boto3_the_cure_is_named(monkeypatch):
    monkeypatch.setattr(s3, "boto3", None)
    with pytest.raises(S3Error, match="pip install"):
        s3.connect(SETTINGS)


def test_settings_hide_their_secrets():
    assert "very-secret" not in repr(SETTINGS) and "access-key-id" not in repr(SETTINGS)


def test_settings_from_options():
    options = {"bucket": "b", "prefix": "/p/", "endpoint_url": "", "region": None, "profile": "x", "secret_key": None}
    assert s3.Settings.from_options(options) == s3.Settings(bucket="b", prefix="p", profile="x")
