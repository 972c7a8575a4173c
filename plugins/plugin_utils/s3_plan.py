# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a checkpoint in the object store consists of: its files, and for each the digest that it will be held to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import digest_lists, manifest, objects, published
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.config_edit import CONFIG
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.digest_choice import (
    KINDS,
    Claim,
    choose,
    disagreements,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.tp_config import ConfigError, derived_text
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3 import Settings
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

#: What objects say of themselves, for people.
OBJECT, ETAG = "object checksum", "object ETag"
#: A list of digests is text with a line a file; what is larger than this is none.
LARGEST_LIST = 64 << 20
#: The published config.json files have 3 to 8 kB.
LARGEST_CONFIG = 1 << 20


@dataclass(frozen=True)
class Wish:
    """What shall be planned. files: relative paths, empty for everything below the prefix. revision: empty to compute.

    sources: of digest_choice.KINDS, in order. lists: paths of digest lists, empty for those found by their names.
    """

    name: str = ""
    files: tuple[str, ...] = ()
    require_checksum: bool = True
    revision: str = ""
    sources: tuple[str, ...] = KINDS
    lists: tuple[str, ...] = ()


def plan(client: Any, settings: Settings, wish: Wish) -> manifest.Manifest:
    """The manifest of the checkpoint below the prefix. Raises S3Error or ManifestError, with everything that is wrong."""
    paths, published_there = _paths(client, settings, wish)
    answers = s3.heads(client, settings, paths)
    _refuse_missing(client, settings, [path for path in paths if answers[path] is None])
    heads = {path: answers[path] or {} for path in paths}
    known = _published(client, settings, wish, paths) if published_there else {}
    listed = _listed_digests(client, settings, wish, heads)
    claims = {path: _claims(path, heads[path], known, listed) for path in paths}
    files = [
        choose(path, int(heads[path]["ContentLength"]), str(heads[path].get("ETag") or ""), claims[path], wish.sources)
        for path in paths
    ]
    usable = {path: [claim for claim in claims[path] if claim.kind in wish.sources] for path in paths}
    _refuse_contradictions(
        settings, [text for file in files for text in disagreements(file.path, file.size, usable[file.path])]
    )
    if wish.require_checksum:
        _refuse_unchecked(settings, files)
    name = wish.name or objects.default_name(settings.prefix, settings.bucket)
    return manifest.make(name, wish.revision, files)


def config_for(client: Any, settings: Settings, planned: manifest.Manifest, tp: int) -> str:
    """Text of config.json when it will be fitted to tp ranks, empty for 0. Raises S3Error when it cannot be."""
    if not tp:
        return ""
    file = planned.by_path().get(CONFIG)
    cure = "Cure: set tensor_parallel (checkpoint_tensor_parallel) to 0, which leaves the file as it is"
    if file is None or file.size > LARGEST_CONFIG:
        what = "no" if file is None else f"{file.size} bytes of"
        raise S3Error(f"{settings.where}: tensor_parallel is {tp}, but the checkpoint has {what} {CONFIG}. {cure}")
    try:
        text = s3.read(client, settings, CONFIG).decode()
        derived_text(text, tp)
    except (UnicodeDecodeError, ConfigError) as error:
        raise S3Error(f"{settings.where}: {CONFIG} cannot be fitted to {tp} ranks: {error}. {cure}") from error
    return text


def sources_text(files: Iterable[manifest.File]) -> str:
    """Which sources gave the digests of how many files: ``MD5SUMS.body (40), object checksum (14)``."""
    counts: dict[str, int] = {}
    for file in files:
        counts[file.digest_source] = counts.get(file.digest_source, 0) + 1
    return ", ".join(f"{source} ({count})" for source, count in counts.items())


def _paths(client: Any, settings: Settings, wish: Wish) -> tuple[list[str], bool]:
    """The files of the checkpoint, and whether to look for a published manifest."""
    if wish.files:
        paths = [path for path in wish.files if path != published.NAME]
        _refuse_names(settings, manifest.set_problems(paths))
        return paths, "manifest" in wish.sources
    everything = s3.listed(client, settings)
    paths = [path for path in everything if path != published.NAME]
    _refuse_names(settings, manifest.set_problems(paths))
    _refuse_holes(client, settings, paths)
    return paths, "manifest" in wish.sources and published.NAME in everything


def _published(client: Any, settings: Settings, wish: Wish, paths: Iterable[str]) -> dict[str, published.Digests]:
    """What the published manifest says, nothing when there is none. It may name fewer files than there are, but not more."""
    content = s3.read_if_there(client, settings, published.NAME)
    known = {} if content is None else _parsed(settings, content)
    missing = [] if wish.files else sorted(set(known) - set(paths))
    if missing:
        raise S3Error(
            f"{settings.where}: {published.NAME} names {len(missing)} files that are not there: {', '.join(missing)}. "
            "Cure: publish the checkpoint again, or upload them"
        )
    return known


def _parsed(settings: Settings, content: bytes) -> dict[str, published.Digests]:
    try:
        return published.parse(content, published.NAME)
    except published.PublishedError as error:
        raise S3Error(
            f"{settings.where}: {error}. Cure: publish the checkpoint again, or leave manifest out of checksum_sources "
            "(checkpoint_checksum_sources)"
        ) from error


def _listed_digests(
    client: Any, settings: Settings, wish: Wish, heads: Mapping[str, Mapping[str, Any]]
) -> dict[str, digest_lists.Listed]:
    """What the digest lists of the prefix say."""
    if "list" not in wish.sources:
        return {}
    names = wish.lists or tuple(path for path in heads if digest_lists.is_list(path))
    large = [name for name in names if int(heads.get(name, {}).get("ContentLength", 0)) > LARGEST_LIST]
    try:
        if large:
            raise digest_lists.ListError(f"{', '.join(large)} is too large for a list of digests")
        found = [digest_lists.parse(name, s3.read(client, settings, name)) for name in names]
        merged, problems = digest_lists.merge(found)
        if problems:
            raise digest_lists.ListError("; ".join(problems))
    except digest_lists.ListError as error:
        raise S3Error(
            f"{settings.where}: {error}. Cure: correct it, name the right lists in digest_lists "
            "(checkpoint_digest_lists), or leave list out of checksum_sources (checkpoint_checksum_sources)"
        ) from error
    return merged


def _claims(
    path: str,
    head: Mapping[str, Any],
    known: Mapping[str, published.Digests],
    listed: Mapping[str, digest_lists.Listed],
) -> list[Claim]:
    """Everything that is said of this file."""
    claims = []
    if path in known:
        file = known[path]
        claims.append(Claim("manifest", published.NAME, file.digests, file.size, file.chunks))
    if path in listed:
        item = listed[path]
        claims.append(Claim("list", item.where, (item.digest,), item.size))
    claims.append(Claim("object", OBJECT, objects.object_digests(head)))
    md5 = objects.etag_digest(head)
    claims.append(Claim("etag", ETAG, (md5,) if md5 else ()))
    return claims


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refuse_names(settings: Settings, problems: list[str]) -> None:
    if problems:
        raise S3Error(
            f"{settings.where}: {len(problems)} file names cannot be staged: {'; '.join(problems)}. "
            "Cure: rename those objects, or list the wanted files in files (checkpoint_files)"
        )


def _refuse_missing(client: Any, settings: Settings, missing: list[str]) -> None:
    """Names what is missing; one listing tells a missing bucket or prefix, for which HEAD says 404 too, from files."""
    if not missing:
        return
    if len(missing) > 1 or not settings.prefix:
        try:
            s3.listed(client, settings)
        except S3Error as error:
            if "may not read" not in str(error):  # a key that may not list can still have the files named
                raise
    raise S3Error(
        f"{settings.where}: {len(missing)} wanted files are not there: {', '.join(missing)}. "
        "Cure: upload them, or take them out of files (checkpoint_files)"
    )


def _refuse_holes(client: Any, settings: Settings, paths: list[str]) -> None:
    """Every shard that an index names has to be there: a half-uploaded prefix lists without an error."""
    for path in (path for path in paths if posixpath.basename(path) == objects.INDEX):
        text = s3.read(client, settings, path)
        try:
            missing = sorted(set(objects.indexed_shards(path, text)) - set(paths))
        except ValueError as error:
            raise S3Error(f"{settings.where}: {error}. Cure: upload the checkpoint's own index") from error
        if missing:
            raise S3Error(
                f"{settings.where}: {path} names {len(missing)} files that are not there: "
                f"{', '.join(missing)}. Cure: upload them, or list the wanted files in files (checkpoint_files)"
            )


def _refuse_contradictions(settings: Settings, problems: list[str]) -> None:
    if problems:
        raise S3Error(
            f"{settings.where}: {len(problems)} contradictions: {'; '.join(problems)}. Either files were replaced after "
            "the list or manifest was written, or an upload is under way. Cure: publish the checkpoint again, upload the "
            "right files, or leave the source that is out of date out of checksum_sources (checkpoint_checksum_sources)"
        )


def _refuse_unchecked(settings: Settings, files: list[manifest.File]) -> None:
    unchecked = [file.path for file in files if file.algorithm == "etag"]
    if unchecked:
        raise S3Error(
            f"{settings.where}: no usable checksum for {len(unchecked)} of {len(files)} files: {', '.join(unchecked)}. "
            "Cure: publish the checkpoint (playbooks/publish.yml), upload them with ChecksumAlgorithm=CRC64NVME "
            "(aws s3 cp --checksum-algorithm CRC64NVME), or set require_checksum (checkpoint_require_checksum) to false, "
            "after which only their sizes are verified"
        )
