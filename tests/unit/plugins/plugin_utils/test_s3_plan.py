# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a checkpoint, with botocore's Stubber in place of a store."""

from __future__ import annotations

import base64
import io
import json

import pytest
from botocore.stub import Stubber

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import published
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, ManifestError, make
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.published import Digests
from ansible_collections.gb10.ring.plugins.plugin_utils import s3, s3_plan
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
    planned = s3_plan.plan(client, SETTINGS, s3_plan.Wish())
    assert planned.name == "tiny" and len(planned.revision) == 16
    assert [(file.path, file.size, file.digest) for file in planned.files] == [
        ("b", 5, "crc64nvme:0000000000000000"),
        ("sub/a", 5, "md5:5d41402abc4b2a76b9719d911017c592"),
    ]
    assert planned.files[0].etag == '"e"'


def body(stub, path, content):
    stub.add_response("get_object", {"Body": io.BytesIO(content)}, {"Bucket": "models", "Key": f"org/tiny/{path}"})


def no_manifest(stub, code="NoSuchKey", status=404):
    stub.add_client_error("get_object", code, "", status)


@pytest.mark.parametrize(("code", "status"), [("NoSuchKey", 404), ("AccessDenied", 403)])
def test_a_list_of_files_needs_no_listing(client, stub, code, status):
    head(stub, "b", ChecksumCRC64NVME=CRC)
    no_manifest(stub, code, status)
    planned = s3_plan.plan(client, SETTINGS, s3_plan.Wish(name="other", files=("b",), revision="v1"))
    assert (planned.name, planned.revision, len(planned.files)) == ("other", "v1", 1)


def test_all_missing_files_are_named(client, stub):
    head(stub, "a", ChecksumCRC64NVME=CRC)
    missing(stub)
    missing(stub, "NoSuchKey")
    listing(stub, "org/tiny/a")
    with pytest.raises(S3Error, match="2 wanted files are not there: b, c") as caught:
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(files=("a", "b", "c")))
    assert "checkpoint_files" in str(caught.value)


def test_a_key_that_may_not_list_still_has_missing_files_named(client, stub):
    missing(stub)
    missing(stub)
    stub.add_client_error("list_objects_v2", "AccessDenied", "", 403)
    with pytest.raises(S3Error, match="2 wanted files are not there: a, b"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(files=("a", "b")))


def test_a_missing_bucket_is_told_from_missing_files(client, stub):
    missing(stub)
    missing(stub)
    stub.add_client_error("list_objects_v2", "NoSuchBucket", "", 404)
    with pytest.raises(S3Error, match="the bucket does not exist"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(files=("a", "b")))


def index(stub, text):
    body(stub, "model.safetensors.index.json", text)


def test_shards_that_the_index_names_and_the_prefix_lacks_are_all_named(client, stub):
    listing(stub, "org/tiny/a.safetensors", "org/tiny/model.safetensors.index.json")
    index(stub, json.dumps({"weight_map": {"t": "a.safetensors", "u": "b.safetensors", "v": "c.safetensors"}}).encode())
    with pytest.raises(S3Error, match=r"names 2 files that are not there: b\.safetensors, c\.safetensors"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"weight_map": 3}', b"\xff"])
def test_an_index_that_is_none_is_refused(client, stub, text):
    listing(stub, "org/tiny/model.safetensors.index.json")
    index(stub, text)
    with pytest.raises(S3Error, match=r"model\.safetensors\.index\.json is not an index"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


def test_an_empty_prefix_is_named(client, stub):
    listing(stub, "org/tiny/")
    with pytest.raises(S3Error, match=r"no object below that prefix.*checkpoint_prefix"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


def test_files_without_a_checksum_are_all_named(client, stub):
    listing(stub, "org/tiny/a", "org/tiny/b", "org/tiny/c")
    for path, etag in (("a", '"x-2"'), ("b", '"5d41402abc4b2a76b9719d911017c592"'), ("c", '"y-3"')):
        head(stub, path, etag=etag)
    with pytest.raises(S3Error, match="no usable checksum for 2 of 3 files: a, c") as caught:
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())
    assert "--checksum-algorithm CRC64NVME" in str(caught.value) and "checkpoint_require_checksum" in str(caught.value)


def test_without_required_checksums_the_etag_pins_the_file(client, stub):
    listing(stub, "org/tiny/a")
    head(stub, "a", etag='"x-2"')
    assert s3_plan.plan(client, SETTINGS, s3_plan.Wish(require_checksum=False)).files[0].digest == "etag:x-2"


@pytest.mark.parametrize("keys", [("org/tiny/../../etc/passwd",), ("org/tiny//absolute",), ("org/tiny/a\\b",)])
def test_keys_that_would_escape_are_refused(client, stub, keys):
    listing(stub, *keys)
    with pytest.raises(S3Error, match="1 file names cannot be staged"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


def test_wanted_files_that_would_escape_are_refused_unasked(client, stub):
    with pytest.raises(S3Error, match=r"2 file names cannot be staged: '\.\./a' .*; '/b' is absolute"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(files=("../a", "/b", "c")))


def test_a_name_that_is_no_directory_is_refused(client, stub):
    head(stub, "a", ChecksumCRC64NVME=CRC)
    no_manifest(stub)
    with pytest.raises(ManifestError, match="not usable as a directory name"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(name="../x", files=("a",)))


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
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())
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
        s3_plan.plan(client, SETTINGS, s3_plan.Wish(files=("a",)))


def test_an_endpoint_that_is_not_there_is_named(client):
    with pytest.raises(S3Error, match="the endpoint cannot be reached"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


# --- where digests come from ------------------------------------------------------------------------------------------

MD5 = "5d41402abc4b2a76b9719d911017c592"
PUBLISHED = published.render("tiny", [Digests("a", 5, "1" * 64, "0" * 16, ("0" * 16,))]).encode()


def test_every_file_falls_to_the_first_source_that_knows_it(client, stub):
    listing(stub, *(f"org/tiny/{path}" for path in ("MD5SUMS.body", "a", "b", "c", "checkpoint-manifest.json", "d")))
    head(stub, "MD5SUMS.body", ChecksumCRC64NVME=CRC)
    for path in ("a", "b", "c"):
        head(stub, path, ChecksumCRC64NVME=CRC)
    head(stub, "d", etag=f'"{MD5}"')
    body(stub, "checkpoint-manifest.json", PUBLISHED)
    body(stub, "MD5SUMS.body", f"{'a' * 32}  a\n{'b' * 32}  b\n{'e' * 32}  not-here\n".encode())
    planned = s3_plan.plan(client, SETTINGS, s3_plan.Wish())
    assert {file.path: (file.digest, file.digest_source) for file in planned.files} == {
        "MD5SUMS.body": ("crc64nvme:" + "0" * 16, "object checksum"),
        "a": ("crc64nvme:" + "0" * 16, "checkpoint-manifest.json"),
        "b": ("md5:" + "b" * 32, "MD5SUMS.body"),
        "c": ("crc64nvme:" + "0" * 16, "object checksum"),
        "d": (f"md5:{MD5}", "object ETag"),
    }
    assert planned.by_path()["a"].chunks == ("0" * 16,)
    assert s3_plan.sources_text(planned.files) == (
        "object checksum (2), checkpoint-manifest.json (1), MD5SUMS.body (1), object ETag (1)"
    )


def test_a_list_of_ones_own_is_read_beside_explicit_files(client, stub):
    head(stub, "a", etag='"x-2"')
    body(stub, "lists/mine", f"{MD5}  ../a".encode())
    wish = s3_plan.Wish(files=("a",), sources=("list", "object"), lists=("lists/mine",))
    assert s3_plan.plan(client, SETTINGS, wish).files[0].digest == f"md5:{MD5}"


def test_sources_that_are_not_wanted_are_not_asked(client, stub):
    listing(stub, "org/tiny/MD5SUMS", "org/tiny/checkpoint-manifest.json")
    head(stub, "MD5SUMS", etag=f'"{MD5}"', ChecksumCRC64NVME=CRC)
    planned = s3_plan.plan(client, SETTINGS, s3_plan.Wish(sources=("etag",)))
    assert [file.digest for file in planned.files] == [f"md5:{MD5}"]


def test_contradictions_are_all_named(client, stub):
    listing(stub, "org/tiny/a", "org/tiny/b", "org/tiny/checkpoint-manifest.json", "org/tiny/SHA256SUMS")
    head(stub, "a", size=6, ChecksumCRC64NVME=base64.b64encode(bytes([1] * 8)).decode())
    head(stub, "b", ChecksumSHA256=base64.b64encode(bytes(32)).decode())
    head(stub, "SHA256SUMS", ChecksumCRC64NVME=CRC)
    body(stub, "checkpoint-manifest.json", PUBLISHED)
    body(stub, "SHA256SUMS", f"{'1' * 64}  b".encode())
    with pytest.raises(S3Error, match="3 contradictions") as caught:
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())
    for text in ("a has 6 bytes, checkpoint-manifest.json says 5", "crc64nvme:0101", "b has sha256:1111", "publish"):
        assert text in str(caught.value)


def test_a_manifest_of_more_files_than_there_are_is_refused(client, stub):
    listing(stub, "org/tiny/b", "org/tiny/checkpoint-manifest.json")
    head(stub, "b", ChecksumCRC64NVME=CRC)
    body(stub, "checkpoint-manifest.json", PUBLISHED)
    with pytest.raises(S3Error, match="names 1 files that are not there: a"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


@pytest.mark.parametrize(
    ("path", "content", "text"),
    [
        ("checkpoint-manifest.json", b"{}", "not a manifest of gb10.ring.*checkpoint_checksum_sources"),
        ("MD5SUMS", b"<html>", "not a list of digests.*checkpoint_digest_lists"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(client, stub, path, content, text):
    listing(stub, "org/tiny/a", f"org/tiny/{path}")
    head(stub, "a", ChecksumCRC64NVME=CRC)
    if path == "MD5SUMS":
        head(stub, path, ChecksumCRC64NVME=CRC)
    body(stub, path, content)
    with pytest.raises(S3Error, match=text):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


def test_a_list_that_is_too_large_is_not_read(client, stub):
    listing(stub, "org/tiny/MD5SUMS")
    head(stub, "MD5SUMS", size=1 << 30, ChecksumCRC64NVME=CRC)
    with pytest.raises(S3Error, match="MD5SUMS is too large"):
        s3_plan.plan(client, SETTINGS, s3_plan.Wish())


CONFIG = json.dumps({"text_config": {"num_attention_heads": 64, "o_groups": 8}}).encode()


def planned_config(size):
    files = [] if size is None else [File("config.json", size, '"c"', "md5:" + "0" * 32)]
    return make("tiny", "", [File("shard", 5, '"s"', "md5:" + "0" * 32), *files])


def test_the_text_of_config_json_comes_with_a_plan_for_so_many_ranks(client, stub):
    body(stub, "config.json", CONFIG)
    assert s3_plan.config_for(client, SETTINGS, planned_config(len(CONFIG)), 3) == CONFIG.decode()


def test_without_ranks_config_json_is_not_read(client, stub):
    assert s3_plan.config_for(client, SETTINGS, planned_config(None), 0) == ""


@pytest.mark.parametrize(
    ("size", "content", "text"),
    [
        (None, None, "the checkpoint has no config.json"),
        (2 << 20, None, "2097152 bytes of config.json"),
        (9, b'{"a": 1}', "cannot be fitted to 3 ranks: config.json has no text_config"),
        (9, b"{", "cannot be fitted to 3 ranks: config.json is not JSON"),
        (9, b"\xff", "cannot be fitted to 3 ranks: 'utf-8' codec"),
    ],
)
def test_a_config_json_that_cannot_be_fitted_is_refused_before_anything_moves(client, stub, size, content, text):
    if content is not None:
        body(stub, "config.json", content)
    with pytest.raises(S3Error, match=text) as error:
        s3_plan.config_for(client, SETTINGS, planned_config(size), 3)
    assert "Cure: set tensor_parallel (checkpoint_tensor_parallel) to 0" in str(error.value)
