# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads from the object store what a plan of Engram rows follows from: config.json, the index, the headers of some shards."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import row_layout, safetensors
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.hashing import hasher
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, Manifest
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.objects import INDEX
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_plan import RowPlan, RowPlanError
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.runtime import find_crc
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.weight_index import (
    INDEX_LIMIT,
    WeightIndexError,
    engram_places,
)
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

CONFIG = "config.json"
#: The published config.json files have 3 to 8 kB.
CONFIG_LIMIT = 1 << 20


def row_plan(client: Any, settings: s3.Settings, planned: Manifest, wanted: row_layout.Wanted) -> RowPlan:
    """The plan of one rank's rows in this checkpoint. Raises S3Error with what is wrong and the cure."""
    files = planned.by_path()
    try:
        config = _config(_whole(client, settings, files, (CONFIG, CONFIG_LIMIT)))
        places = engram_places(_whole(client, settings, files, (INDEX, INDEX_LIMIT)))
        headers = {path: _header(client, settings, files, path) for path in row_layout.shards(config, places)}
        return row_layout.build(config, places, headers, wanted)
    except (RowPlanError, WeightIndexError, safetensors.HeaderError) as error:
        raise S3Error(
            f"{settings.where}: the Engram rows of rank {wanted.rank} cannot be planned: {error}. Cure: upload the checkpoint "
            "anew, or leave its Engram tables alone (empty checkpoint_engram_rule)"
        ) from error


def _config(data: bytes) -> dict[str, Any]:
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RowPlanError(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise RowPlanError(f"{CONFIG} holds a {type(config).__name__}, expected an object")
    return config


def _file(files: dict[str, File], path: str) -> File:
    if path not in files:
        raise RowPlanError(f"the checkpoint has no {path}; name it in files (checkpoint_files)")
    return files[path]


def _whole(client: Any, settings: s3.Settings, files: dict[str, File], what: tuple[str, int]) -> bytes:
    """A small file, held to its digest."""
    path, limit = what
    file = _file(files, path)
    if not 0 < file.size <= limit:
        raise RowPlanError(f"{path}: {file.size} bytes, expected 1 to {limit}")
    data = s3.read_part(client, settings, path, (0, file.size), file.etag)
    try:
        computed = hasher(file.digest, find_crc("crc64nvme"), file.size)
    except LookupError:
        return data  # nodes compute it; here it takes awscrt
    computed.update(memoryview(data))
    if computed.digest() != file.digest:
        raise RowPlanError(f"{path}: expected {file.digest}, got {computed.digest()}")
    return data


def _header(client: Any, settings: s3.Settings, files: dict[str, File], path: str) -> safetensors.Header:
    file = _file(files, path)
    if file.size < safetensors.LENGTH_FIELD:
        raise RowPlanError(f"{path}: {file.size} bytes are no safetensors file")
    start = s3.read_part(client, settings, path, (0, safetensors.LENGTH_FIELD), file.etag)
    size = safetensors.header_size(start, file.size, path)
    return safetensors.parse(s3.read_part(client, settings, path, (0, size), file.etag), file.size, path)
