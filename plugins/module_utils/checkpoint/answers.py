# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the answer to a ranged GET means: bytes to take, try again, ask elsewhere, or give the file up. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

from .http1 import Answer, BrokenError
from .source import Source


class MoveError(Exception):
    """This file did not arrive; the text says why and what to do. disk_full: no other file will fit either."""

    def __init__(self, text: str, disk_full: bool = False) -> None:
        super().__init__(text)
        self.disk_full = disk_full


class StoppedError(MoveError):
    """This file was given up for a reason that is not its own: the run was stopped, or another part of it failed."""


class ChangedError(MoveError):
    """The object is another one than that of the plan: the file has to begin again with what it is now."""


class ExpiredError(MoveError):
    """The signed address is too old; with a new one the transfer goes on."""


class AbsentError(MoveError):
    """The object is not there: for a peer, which fetches it itself, perhaps not yet."""


class GoneError(AbsentError):
    """A peer has not got it and will not get it."""


class RangeIgnoredError(BrokenError):
    """The whole object came where a part was asked for."""


@dataclass(frozen=True)
class Asked:
    """What was asked for: bytes start to end (exclusive) of an object of this size, pinned by an ETag unless that is empty."""

    source: Source
    start: int
    end: int
    size: int
    etag: str

    def headers(self) -> dict[str, str]:
        pin = {"If-Match": self.etag} if self.etag and self.source.kind == "s3" else {}
        return {"Range": f"bytes={self.start}-{self.end - 1}", **pin}

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.end == self.size


def judge(asked: Asked, answer: Answer, text: Callable[[], bytes], now: datetime) -> None:
    """Returns when the answer's body is what was asked for. text: reads the body of an error. Raises MoveError, BrokenError."""
    if answer.status not in (200, 206):
        raise _refusal(asked, answer.status, text(), now)
    etag = answer.headers.get("etag", "")
    if asked.etag and etag and asked.source.kind == "s3" and etag.strip('"') != asked.etag.strip('"'):
        raise ChangedError(changed(f"its ETag was {asked.etag} and is {etag}"))
    if answer.status == 200:
        _judge_whole(asked, answer)
    else:
        _judge_range(asked, answer)


def _judge_whole(asked: Asked, answer: Answer) -> None:
    if answer.length is not None and answer.length != asked.size:
        raise ChangedError(changed(f"it had {asked.size} bytes and has {answer.length}"))
    if not asked.whole:
        raise RangeIgnoredError(
            f"asked for bytes {asked.start}-{asked.end - 1} of {asked.size}, the store sent the whole object (200)"
        )
    if answer.length is None:
        raise BrokenError("the store does not say how long its answer is")


def _judge_range(asked: Asked, answer: Answer) -> None:
    wanted = f"bytes {asked.start}-{asked.end - 1}/{asked.size}"
    found = answer.headers.get("content-range", "")
    match = re.fullmatch(r"bytes \d+-\d+/(\d+)", found)
    if match and int(match.group(1)) != asked.size:
        raise ChangedError(changed(f"it had {asked.size} bytes and has {match.group(1)}"))
    if found != wanted or answer.length != asked.end - asked.start:
        raise BrokenError(f"asked for {wanted}, the store sent {found!r} with {answer.length} bytes")


def _refusal(asked: Asked, status: int, body: bytes, now: datetime) -> Exception:
    # The code in an S3 error document: never the document itself, which repeats parts of the signed request.
    match = re.search(rb"<Code>([A-Za-z0-9]{1,64})</Code>", body)
    code = match.group(1).decode() if match else ""
    said = f"{status} {code}".strip()
    if status in (408, 429) or status >= 500:
        return BrokenError(f"the store answered {said}")
    if status == 403:
        gone = b"expired" in body.lower() or "Expired" in code or expired(asked.source.url, now)
        return _expired(said) if gone else _forbidden(said)
    known = {
        404: AbsentError(f"the object is gone ({said}); it was there when the run was planned. Upload it, run again"),
        410: GoneError(f"it is gone for good ({said}). Upload it, run again"),
        412: ChangedError(changed("the store no longer has that ETag")),
        416: ChangedError(changed(f"it has no bytes {asked.start}-{asked.end - 1} any more ({said})")),
    }
    return known.get(status) or MoveError(f"the store answered {said}; expected 200 or 206")


def _expired(said: str) -> ExpiredError:
    return ExpiredError(
        f"the signed address expired ({said}); option url_expiry_s (checkpoint_url_expiry_s) says how long it is good"
    )


def _forbidden(said: str) -> MoveError:
    return MoveError(
        f"the store refused the signed address ({said}): the key has no right to read it, or the clocks of "
        "controller and store differ. Finished parts are kept: cure that and run again"
    )


def changed(how: str) -> str:
    return f"the object changed since it was planned: {how}. Run again, which plans anew"


def expired(url: str, now: datetime) -> bool:
    """Whether a presigned address says itself that it is too old."""
    query = parse_qs(urlsplit(url).query)
    try:
        signed = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        return now > signed + timedelta(seconds=int(query["X-Amz-Expires"][0]))
    except (KeyError, ValueError):
        return False
