# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an S3 failure means and what to do about it, as one sentence without any secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class S3Error(Exception):
    """An expected failure of the object store or its settings; its text is the message for the user."""


@dataclass(frozen=True)
class Where:
    """What was tried, for the message. endpoint: address, or "AWS" when none was given."""

    endpoint: str
    bucket: str
    prefix: str
    region: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix} at {self.endpoint}"


#: Cause and cure by error code. ``{}`` stands for where.
_CODES: dict[str, tuple[str, str]] = {
    "NoSuchBucket": ("the bucket does not exist", "correct bucket (checkpoint_bucket), or create it"),
    "InvalidBucketName": ("the store does not accept that bucket name", "correct bucket (checkpoint_bucket)"),
    "InvalidAccessKeyId": (
        "the store does not know this access key",
        "correct the access key (checkpoint_s3_access_key, or the profile named by checkpoint_s3_profile)",
    ),
    "SignatureDoesNotMatch": (
        "the signature is wrong, so the secret key does not belong to the access key",
        "correct the secret key (checkpoint_s3_secret_key, or the profile named by checkpoint_s3_profile)",
    ),
    "AccessDenied": (
        "this key may not read there",
        "give it s3:ListBucket on the bucket and s3:GetObject on the objects, or use another key (checkpoint_s3_profile)",
    ),
    "RequestTimeTooSkewed": ("the clock of this controller is wrong", "set it (timedatectl set-ntp true)"),
    "ExpiredToken": ("the session token has expired", "log in again, or use a key that does not expire"),
    "InvalidToken": ("the session token is not valid", "log in again, or use a key without a token"),
    "AuthorizationHeaderMalformed": (
        "the store expects another region than {region}",
        "set region (checkpoint_region) to that of the bucket",
    ),
    "PermanentRedirect": (
        "the bucket lies in another region or at another endpoint",
        "set region and endpoint_url (checkpoint_region, checkpoint_endpoint_url) to those of the bucket",
    ),
    "SlowDown": ("the store asks for fewer requests", "run again later"),
}
#: HEAD answers have no body, so botocore gives the bare status as the code.
_STATUS = {"403": "AccessDenied", "404": "NoSuchBucket", "301": "PermanentRedirect"}


#: The right that writing needs beside.
_NO_WRITE = (
    "this key may not write there",
    "give it s3:PutObject and s3:AbortMultipartUpload on the objects, and s3:ListBucketMultipartUploads on the bucket and "
    "s3:ListMultipartUploadParts on the objects to go on where a run broke off, or use another key (checkpoint_s3_profile)",
)


def from_client_error(response: dict[str, Any], operation: str, where: Where, writing: bool = False) -> S3Error:
    """The message for an answer of the store that says no. writing: whether it was asked to store something."""
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    known = _STATUS.get(code, code)
    cause, cure = _NO_WRITE if writing and known == "AccessDenied" else _CODES.get(known, ("", ""))
    if not cause:
        text = str(response.get("Error", {}).get("Message", "")) or "no reason given"
        return S3Error(f"{operation} of {where} failed: the store answered {status} {code}: {text}")
    return S3Error(
        f"{operation} of {where} failed: {cause.format(region=where.region)} ({status} {code}). Cure: {cure}"
    )


#: Cause and cure by the name of a botocore exception class: nothing of botocore has to be importable here.
_CLASSES: dict[str, tuple[str, str]] = {
    "NoCredentialsError": (
        "no credentials were found",
        "set checkpoint_s3_profile, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the controller; "
        "for a public bucket, checkpoint_anonymous",
    ),
    "PartialCredentialsError": ("only one half of the credentials was found", "give access key and secret key"),
    "ProfileNotFound": (
        "the controller's AWS configuration has no such profile ({error})",
        "correct profile (checkpoint_s3_profile), or AWS_SHARED_CREDENTIALS_FILE",
    ),
    "EndpointConnectionError": (
        "the endpoint cannot be reached",
        "correct endpoint_url (checkpoint_endpoint_url), start the store, or open the way to it from the controller",
    ),
    "ConnectTimeoutError": (
        "the endpoint does not answer",
        "correct endpoint_url (checkpoint_endpoint_url), or open the way to it from the controller",
    ),
    "ReadTimeoutError": ("the endpoint stopped answering", "look at the store, then run again"),
    "InvalidEndpoint": (
        "the endpoint is no address",
        "write endpoint_url (checkpoint_endpoint_url) as http://host:port or https://host",
    ),
    "ConnectionClosedError": (
        "the endpoint broke the conversation off",
        "correct endpoint_url (checkpoint_endpoint_url): it may speak https where http was asked, or the reverse",
    ),
    "SSLError": (
        "the certificate of the endpoint is not trusted",
        "name its authority in ca_bundle (checkpoint_ca_bundle), a PEM file on the controller",
    ),
}


def from_exception(error: Exception, operation: str, where: Where) -> S3Error:
    """The message for a failure before any answer."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "SSLError" in kinds and "CERTIFICATE_VERIFY_FAILED" not in str(error):
        kinds = ["ConnectionClosedError"]
    if isinstance(error, ValueError) and str(error).startswith("Invalid endpoint"):
        kinds = ["InvalidEndpoint"]
    for kind in kinds:
        if kind in _CLASSES:
            cause, cure = _CLASSES[kind]
            return S3Error(f"{operation} of {where} failed: {cause.format(error=error)}. Cure: {cure}")
    return S3Error(f"{operation} of {where} failed: {type(error).__name__}: {error}")
