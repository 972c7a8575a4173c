# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.answers import (
    AbsentError,
    Asked,
    ChangedError,
    ExpiredError,
    MoveError,
    RangeIgnoredError,
    expired,
    judge,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.http1 import Answer, BrokenError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
SIGNED = "http://s3/b/k?X-Amz-Date=20261101T110000Z&X-Amz-Expires=%d&X-Amz-Signature=secret"
PART = Asked(Source(SIGNED % 7200), 10, 20, 30, '"e"')
WHOLE = Asked(Source(SIGNED % 7200), 0, 30, 30, '"e"')
PEER = Asked(Source("http://peer/k", "peer"), 10, 20, 30, '"e"')
GOOD = {"content-range": "bytes 10-19/30", "content-length": "10", "etag": '"e"'}


def ask(asked, status, body=b"", **headers):
    judge(asked, Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}), lambda: body, NOW)


@pytest.mark.parametrize(
    ("asked", "status", "headers"),
    [
        (PART, 206, GOOD),
        (PART, 206, {**GOOD, "etag": "e"}),
        (PART, 206, {name: GOOD[name] for name in ("content-range", "content-length")}),
        (PEER, 206, {**GOOD, "etag": '"of its own"'}),
        (WHOLE, 200, {"content-length": "30", "etag": '"e"'}),
        (WHOLE, 206, {"content-range": "bytes 0-29/30", "content-length": "30"}),
    ],
)
def test_answers_that_are_taken(asked, status, headers):
    assert judge(asked, Answer(status, headers), bytes, NOW) is None


@pytest.mark.parametrize(
    ("asked", "status", "headers", "error"),
    [
        (PART, 206, {**GOOD, "etag": '"f"'}, ChangedError),
        (PART, 206, {**GOOD, "content-range": "bytes 10-19/31"}, ChangedError),
        (PART, 206, {**GOOD, "content-range": "bytes 0-9/30"}, BrokenError),
        (PART, 206, {**GOOD, "content-length": "9"}, BrokenError),
        (PART, 206, {"content-length": "10"}, BrokenError),
        (PART, 206, {"content-range": "bytes 10-19/30"}, BrokenError),
        (PART, 200, {"content-length": "30"}, RangeIgnoredError),
        (PART, 200, {"content-length": "10"}, ChangedError),
        (WHOLE, 200, {"content-length": "31"}, ChangedError),
        (WHOLE, 200, {}, BrokenError),
        (PEER, 206, {**GOOD, "content-range": "bytes 10-19/31"}, ChangedError),
    ],
)
def test_answers_that_are_not(asked, status, headers, error):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(error) as caught:
        judge(asked, Answer(status, headers), bytes, NOW)
    assert caught.type is error


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", ExpiredError),
        (403, b"<Error><Code>ExpiredToken</Code></Error>", ExpiredError),
        (403, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", MoveError),
        (403, b"", MoveError),
        (404, b"<Code>NoSuchKey</Code>", AbsentError),
        (412, b"", ChangedError),
        (416, b"", ChangedError),
        (400, b"", MoveError),
        (301, b"", MoveError),
        (408, b"", BrokenError),
        (429, b"", BrokenError),
        (500, b"", BrokenError),
        (503, b"<Code>SlowDown</Code>", BrokenError),
    ],
)
def test_refusals(status, body, error):
    with pytest.raises(error) as caught:
        ask(PART, status, body)
    assert caught.type is error
    assert status == 412 or str(status) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_address_that_says_itself_that_it_is_too_old():
    with pytest.raises(ExpiredError):
        ask(Asked(Source(SIGNED % 3599), 10, 20, 30, ""), 403)


@pytest.mark.parametrize(
    ("url", "old"),
    [
        (SIGNED % 3600, False),
        (SIGNED % 3599, True),
        ("http://s3/k", False),
        ("http://s3/k?X-Amz-Date=x&X-Amz-Expires=1", False),
    ],
)
def test_the_age_of_an_address(url, old):
    assert expired(url, NOW) is old


def test_what_is_asked_for():
    assert PART.headers() == {"Range": "bytes=10-19", "If-Match": '"e"'}
    assert PEER.headers() == {"Range": "bytes=10-19"}
