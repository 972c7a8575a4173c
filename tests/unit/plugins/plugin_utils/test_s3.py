# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the object store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

SETTINGS = s3.Settings(
    bucket="models",
    prefix="org/tiny",
    endpoint_url="http://127.0.0.1:1",
    access_key="access-key-id",
    secret_key="very-secret",
)


@pytest.fixture
def client():
    return s3.connect(SETTINGS)


def test_signed_addresses_hold_path_expiry_and_no_secret(client):
    urls = s3.sign(client, SETTINGS, ["sub/a b"], 600)
    url = urls["sub/a b"]
    assert url.startswith("http://127.0.0.1:1/models/org/tiny/sub/a%20b?")
    assert "X-Amz-Expires=600" in url and "X-Amz-SignedHeaders=host" in url
    assert "very-secret" not in url


def test_addresses_for_nodes_are_signed_for_the_endpoint_that_nodes_see():
    settings = replace(SETTINGS, node_endpoint_url="http://10.0.0.5:9000")
    urls = [s3.sign(s3.connect(each), each, ["a"], 60)["a"] for each in (settings, settings.for_nodes)]
    assert [url.partition("/models/")[0] for url in urls] == ["http://127.0.0.1:1", "http://10.0.0.5:9000"]
    assert SETTINGS.for_nodes == SETTINGS


@pytest.mark.parametrize(
    ("style", "endpoint", "start"),
    [
        ("path", "https://s3.example.net", "https://s3.example.net/models/org/tiny/a?"),
        ("virtual", "https://s3.example.net", "https://models.s3.example.net/org/tiny/a?"),
        ("virtual", None, "https://models.s3.amazonaws.com/org/tiny/a?"),
        ("auto", "https://s3.example.net", "https://s3.example.net/models/org/tiny/a?"),
        ("auto", None, "https://models.s3.amazonaws.com/org/tiny/a?"),
    ],
)
def test_addresses_name_the_bucket_where_the_store_wants_it(style, endpoint, start):
    settings = replace(SETTINGS, addressing_style=style, endpoint_url=endpoint)
    assert s3.sign(s3.connect(settings), settings, ["a"], 60)["a"].startswith(start)


def test_addresses_of_a_public_bucket_are_not_signed():
    settings = replace(SETTINGS, access_key=None, secret_key=None, anonymous=True)
    assert s3.sign(s3.connect(settings), settings, ["a"], 60) == {"a": "http://127.0.0.1:1/models/org/tiny/a"}


def test_timeouts_are_the_users():
    config = s3.connect(replace(SETTINGS, connect_timeout_s=7, read_timeout_s=90)).meta.config
    assert (config.connect_timeout, config.read_timeout) == (7, 90)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"endpoint_url": "foo"}, "the endpoint is no address"),
        ({"profile": "there-is-no-such-profile"}, "no such profile"),
        ({"anonymous": True}, "anonymous .* credentials are given too"),
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
    more = {"anonymous": True, "node_endpoint_url": "http://n", "connect_timeout_s": 1, "read_timeout_s": 2}
    assert s3.Settings.from_options({"bucket": "b", **more}) == s3.Settings(bucket="b", **more)
