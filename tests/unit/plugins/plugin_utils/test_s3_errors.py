# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from botocore import exceptions

from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import Where, from_client_error, from_exception

WHERE = Where("http://192.0.2.1:8333", "models", "org/tiny", "us-east-1")


def response(code, status, message="text of the store"):
    return {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("code", "status", "texts"),
    [
        ("NoSuchBucket", 404, ["the bucket does not exist", "checkpoint_bucket"]),
        ("404", 404, ["the bucket does not exist"]),
        ("InvalidAccessKeyId", 403, ["does not know this access key", "checkpoint_s3_access_key"]),
        ("SignatureDoesNotMatch", 403, ["the signature is wrong", "checkpoint_s3_secret_key"]),
        ("AccessDenied", 403, ["may not read", "s3:ListBucket", "s3:GetObject"]),
        ("403", 403, ["may not read"]),
        ("RequestTimeTooSkewed", 403, ["clock", "timedatectl"]),
        ("AuthorizationHeaderMalformed", 400, ["another region than us-east-1", "checkpoint_region"]),
        ("PermanentRedirect", 301, ["another region", "checkpoint_endpoint_url"]),
        ("ExpiredToken", 400, ["session token has expired"]),
        ("SlowDown", 503, ["run again later"]),
        ("Strange", 418, ["the store answered 418 Strange: text of the store"]),
    ],
)
def test_answers_of_the_store(code, status, texts):
    text = str(from_client_error(response(code, status), "listing", WHERE))
    assert text.startswith("listing of s3://models/org/tiny at http://192.0.2.1:8333 failed: ")
    assert all(part in text for part in texts)


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        (exceptions.NoCredentialsError(), ["no credentials", "checkpoint_s3_profile", "AWS_ACCESS_KEY_ID"]),
        (exceptions.PartialCredentialsError(provider="env", cred_var="x"), ["one half"]),
        (exceptions.ProfileNotFound(profile="reader"), ["no such profile", "(reader)", "checkpoint_s3_profile"]),
        (exceptions.EndpointConnectionError(endpoint_url="http://x"), ["cannot be reached", "checkpoint_endpoint_url"]),
        (exceptions.ConnectTimeoutError(endpoint_url="http://x"), ["does not answer"]),
        (exceptions.ReadTimeoutError(endpoint_url="http://x"), ["stopped answering"]),
        (exceptions.ConnectionClosedError(endpoint_url="http://x"), ["broke the conversation off", "https where http"]),
        (
            exceptions.SSLError(endpoint_url="https://x", error="CERTIFICATE_VERIFY_FAILED"),
            ["certificate", "checkpoint_ca_bundle"],
        ),
        (exceptions.SSLError(endpoint_url="https://x", error="WRONG_VERSION_NUMBER"), ["https where http"]),
        (ValueError("Invalid endpoint: foo"), ["no address", "http://host:port"]),
        (exceptions.BotoCoreError(), ["BotoCoreError"]),
    ],
)
def test_failures_before_any_answer(error, texts):
    text = str(from_exception(error, "listing", WHERE))
    assert all(part in text for part in texts)
