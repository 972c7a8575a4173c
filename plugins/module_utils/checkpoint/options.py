# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that several modules and action plugins of the checkpoint share: how to reach the object store."""

from __future__ import annotations

from typing import Any

from .digest_choice import KINDS
from .engram import MOST_RANKS
from .layout import DEFAULT_PYTHON_PATH, DEFAULT_ROOT
from .switch import PHASES

S3_OPTIONS: dict[str, dict[str, Any]] = {
    "endpoint_url": {"type": "str"},
    "region": {"type": "str", "default": "us-east-1"},
    "bucket": {"type": "str"},
    "prefix": {"type": "str", "default": ""},
    "profile": {"type": "str"},
    "access_key": {"type": "str", "no_log": True},
    "secret_key": {"type": "str", "no_log": True},
    "addressing_style": {"type": "str", "choices": ["path", "virtual", "auto"], "default": "path"},
    "ca_bundle": {"type": "path"},
    "node_endpoint_url": {"type": "str"},
    "anonymous": {"type": "bool", "default": False},
    "connect_timeout_s": {"type": "int", "default": 5},
    "read_timeout_s": {"type": "int", "default": 30},
}

PLAN_OPTIONS: dict[str, dict[str, Any]] = {
    **S3_OPTIONS,
    "bucket": {"type": "str", "required": True},
    "name": {"type": "str"},
    "files": {"type": "list", "elements": "str", "default": []},
    "require_checksum": {"type": "bool", "default": True},
    "checksum_sources": {"type": "list", "elements": "str", "choices": list(KINDS), "default": list(KINDS)},
    "digest_lists": {"type": "list", "elements": "str", "default": []},
    "revision": {"type": "str"},
    "tensor_parallel": {"type": "int", "default": 0},
}

PUBLISH_OPTIONS: dict[str, dict[str, Any]] = {
    **S3_OPTIONS,
    "bucket": {"type": "str", "required": True},
    "source": {"type": "path", "required": True},
    "source_revision": {"type": "str"},
    "name": {"type": "str"},
    "files": {"type": "list", "elements": "str", "default": []},
    "upload_part_mib": {"type": "int", "default": 64},
    "workers": {"type": "int", "default": 4},
    "progress": {"type": "str", "choices": ["auto", "on", "off"], "default": "auto"},
}

ROOT_OPTIONS: dict[str, dict[str, Any]] = {
    "root": {"type": "path", "default": DEFAULT_ROOT},
}

#: Of modules that bring files onto a node. The last four are filled in by the action plugin.
BRING_OPTIONS: dict[str, dict[str, Any]] = {
    **S3_OPTIONS,
    **ROOT_OPTIONS,
    "plan": {"type": "dict", "required": True},
    "phase": {"type": "str", "choices": ["budget", "stage"], "default": "stage"},
    "node": {"type": "str"},
    "disk_ceiling_percent": {"type": "int", "default": 85},
    "workers": {"type": "int", "default": 8},
    "stall_timeout_s": {"type": "int", "default": 300},
    "url_expiry_s": {"type": "int", "default": 86400},
    "python_path": {"type": "path", "default": DEFAULT_PYTHON_PATH},
    "wheel_dir": {"type": "path"},
    "part_mib": {"type": "int", "default": 32},
    "rate_limit": {"type": "int", "default": 0},
    "progress": {"type": "str", "choices": ["auto", "on", "off"], "default": "auto"},
    "peers": {"type": "dict", "no_log": True},
    "lease_s": {"type": "int", "default": 0},
    "sources_file": {"type": "path"},
    "ca_pem": {"type": "str"},
    "wheel": {"type": "path"},
}

#: Which Engram rows the engine of a node reads.
ENGRAM_WANTED: dict[str, dict[str, Any]] = {
    "engram": {
        "type": "dict",
        "options": {
            "placement": {"type": "str", "choices": ["directory", "shard", "full"], "default": "full"},
            "rule": {"type": "str", "choices": ["", "vllm", "sglang"], "default": ""},
            "tensor_parallel": {"type": "int", "default": 1},
            "rank": {"type": "int", "default": 0},
            "directory": {"type": "path"},
        },
    },
}

#: Of modules that read again what is there before they say what has to happen.
AGAIN_OPTIONS: dict[str, dict[str, Any]] = {
    "verify": {"type": "str", "choices": ["recorded", "full"], "default": "recorded"},
    "verify_rate_limit": {"type": "int", "default": 600_000_000},
    "damaged": {"type": "dict"},
}

STAGE_OPTIONS: dict[str, dict[str, Any]] = {
    **BRING_OPTIONS,
    **AGAIN_OPTIONS,
    **ENGRAM_WANTED,
    "supersedes": {"type": "str"},
    "sliced": {"type": "list", "elements": "str", "default": []},
    "also_needed": {"type": "int", "default": 0},
    "in_place": {"type": "bool", "default": False},
    "keep": {"type": "int", "default": 2},
    "replaced_ok": {"type": "bool", "default": False},
}

ACTIVATE_OPTIONS: dict[str, dict[str, Any]] = {
    **ROOT_OPTIONS,
    "name": {"type": "str", "required": True},
    "revision": {"type": "str", "required": True},
    "phase": {"type": "str", "choices": list(PHASES), "default": "now"},
    "origin": {"type": "str"},
    **ENGRAM_WANTED,
    "downtime_s": {"type": "float"},
}

PRUNE_OPTIONS: dict[str, dict[str, Any]] = {
    **ROOT_OPTIONS,
    "name": {"type": "str", "required": True},
    "node": {"type": "str", "required": True},
    "keep": {"type": "int", "default": 2},
    "unfinished": {"type": "bool", "default": False},
    "foreign_paths": {"type": "list", "elements": "path", "default": []},
    "unused_rows": {"type": "bool", "default": False},
    **ENGRAM_WANTED,
}

#: Which rows, and where they lie.
RANK_OPTIONS: dict[str, dict[str, Any]] = {
    "tensor_parallel": {"type": "int", "required": True},
    "rank": {"type": "int", "required": True},
    "rule": {"type": "str", "choices": ["vllm", "sglang"], "required": True},
    "placement": {"type": "str", "choices": ["directory", "shard", "full"], "default": "full"},
    "directory": {"type": "path"},
}

ENGRAM_OPTIONS: dict[str, dict[str, Any]] = {
    **BRING_OPTIONS,
    **AGAIN_OPTIONS,
    **RANK_OPTIONS,
    "whole_directories": {"type": "list", "elements": "path", "default": []},
    "verify_share": {"type": "float", "default": 1.0},
    "rows": {"type": "dict"},
}

#: Of modules that look at what a node holds.
LOOK_OPTIONS: dict[str, dict[str, Any]] = {
    **ROOT_OPTIONS,
    "name": {"type": "str", "required": True},
    "revision": {"type": "str"},
    "node": {"type": "str", "required": True},
    "verify": {"type": "str", "choices": ["recorded", "full"], "default": "recorded"},
    "rate_limit": {"type": "int", "default": 600_000_000},
    "python_path": {"type": "path", "default": DEFAULT_PYTHON_PATH},
}

CHECKPOINT_INFO_OPTIONS: dict[str, dict[str, Any]] = {
    **LOOK_OPTIONS,
    **ENGRAM_WANTED,
    "tensor_parallel": {"type": "int"},
    "disk_ceiling_percent": {"type": "int", "default": 85},
}

ENGRAM_INFO_OPTIONS: dict[str, dict[str, Any]] = {**LOOK_OPTIONS, **RANK_OPTIONS}

#: TCP port of the servers that give files to other nodes.
PEER_PORT = 7871

FANOUT_OPTIONS: dict[str, dict[str, Any]] = {
    "plan": {"type": "dict", "required": True},
    "hosts": {"type": "list", "elements": "str"},
    "port": {"type": "int", "default": PEER_PORT},
    "patience_s": {"type": "int", "default": 21600},
}

PEER_OPTIONS: dict[str, dict[str, Any]] = {
    **ROOT_OPTIONS,
    "state": {"type": "str", "choices": ["started", "stopped"], "required": True},
    "plan": {"type": "dict"},
    "listen": {"type": "list", "elements": "dict", "default": []},
    "port": {"type": "int", "default": PEER_PORT},
    "token": {"type": "str", "no_log": True},
    "idle_s": {"type": "int", "default": 600},
    "max_s": {"type": "int", "default": 86400},
}

#: What only the controller needs; it never reaches a node.
CONTROLLER_ONLY = frozenset({*S3_OPTIONS, "url_expiry_s", "wheel_dir", "progress", "peers", "replaced_ok"}) - {
    "connect_timeout_s",
    "read_timeout_s",
}

PAIRS = [("access_key", "secret_key")]


def range_problems(options: dict[str, Any]) -> list[str]:
    """What is wrong with the numbers, one text each."""
    allowed = {
        "disk_ceiling_percent": (1, 100),
        "tensor_parallel": (0, MOST_RANKS),
        "rank": (0, MOST_RANKS - 1),
        "also_needed": (0, 1 << 60),
        "verify_share": (0, 1),
        "workers": (1, 64),
        "stall_timeout_s": (1, 86400),
        # The longest life that signature version 4 allows is seven days.
        "url_expiry_s": (60, 604800),
        "upload_part_mib": (16, 4096),
        "connect_timeout_s": (1, 3600),
        "read_timeout_s": (1, 3600),
        "part_mib": (8, 64),
        "rate_limit": (0, 1 << 40),
        "lease_s": (0, 3600),
        "port": (1024, 65535),
        "patience_s": (0, 604800),
        "idle_s": (10, 86400),
        "max_s": (60, 604800),
        "verify_rate_limit": (0, 1 << 40),
        "keep": (2, 1000),
    }
    return [
        f"option {name} is {options[name]}, allowed are {low} to {high}"
        for name, (low, high) in allowed.items()
        if options.get(name) is not None and not low <= options[name] <= high
    ]
