# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which digest a file is held to, of everything that says something about it; and where these disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from .manifest import File

#: Where a digest may come from, in the order in which they count.
#: manifest: our own, published last. list: MD5SUMS, SHA256SUMS, a Hugging Face inventory. object: the checksum of the whole
#: object that the store keeps. etag: the MD5 that the ETag of a single-part object is.
KINDS = ("manifest", "list", "object", "etag")


@dataclass(frozen=True)
class Claim:
    """What one source says of a file. kind: of KINDS. where: for people. digests: the preferred one first. size: None if unsaid."""

    kind: str
    where: str
    digests: tuple[str, ...]
    size: int | None = None
    chunks: tuple[str, ...] = ()


def choose(path: str, size: int, etag: str, claims: Iterable[Claim], kinds: Sequence[str] = KINDS) -> File:
    """The file with the first digest that a source of these kinds gives; with none, the ETag pins the object and no more."""
    usable = sorted((claim for claim in claims if claim.kind in kinds), key=lambda claim: kinds.index(claim.kind))
    chunks = next((claim.chunks for claim in usable if claim.chunks), ())
    for claim in usable:
        if claim.digests:
            return File(path, size, etag, claim.digests[0], claim.where, chunks)
    return File(path, size, etag, "etag:" + etag.strip('"'), "none", chunks)


def disagreements(path: str, size: int, claims: Iterable[Claim]) -> list[str]:
    """Where the sources contradict each other or the object's size: bytes would be moved for nothing."""
    known = list(claims)
    problems = [
        f"{path} has {size} bytes, {claim.where} says {claim.size}"
        for claim in known
        if claim.size is not None and claim.size != size
    ]
    for one, other in combinations(known, 2):
        theirs = dict(digest.split(":", 1) for digest in other.digests)
        for digest in one.digests:
            algorithm, value = digest.split(":", 1)
            if theirs.get(algorithm, value) != value:
                problems.append(
                    f"{path} has {digest} in {one.where} and {algorithm}:{theirs[algorithm]} in {other.where}"
                )
    return problems
