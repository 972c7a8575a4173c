#!/usr/bin/env python3
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Later states of a lab checkpoint, as model updates make them: a folder of hard links to the base, with what changed written anew.

Each has the checkpoint-manifest.json that publishing would write, so that chunks of both states are known.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from awscrt import checksums  # type: ignore[import-untyped]

if __name__ == "__main__":  # run by path: this checkout's folders are the packages `lab` and `plugins`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lab.checkpoint_inventory import shard_name
from plugins.module_utils.checkpoint import published

CHUNK = 16 << 20
SMALL = ("quantization_config.json", "tokenizer.json", "tokenizer_config.json")
#: The one that the only derived pack known to change a single shard changes (SFX 2.0bpw-mcg-lmhead-mxfp8).
SHARD = shard_name(43)
ENGRAM = (shard_name(47), shard_name(48))
INDEX = "model.safetensors.index.json"


def _small(folder: Path) -> None:
    for name in SMALL:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        content.setdefault("metadata", {})["lab_revision"] = "small"
        _write(folder / name, json.dumps(content, indent=2).encode())


def _shard(folder: Path) -> None:
    _rewrite(folder / SHARD, 0)


def _chunk(folder: Path) -> None:
    """One chunk in the middle of the largest file: what a tensor that was quantised anew changes."""
    path = folder / ENGRAM[1]
    content = bytearray(path.read_bytes())
    content[2 * CHUNK + 100 : 2 * CHUNK + 200] = random.Random("chunk").randbytes(100)
    _write(path, bytes(content))


def _shards(folder: Path) -> None:
    """Both of these."""
    _shard(folder)
    _chunk(folder)


def _engram(folder: Path) -> None:
    """The two largest shards, close to half of all bytes."""
    for name in ENGRAM:
        _rewrite(folder / name, 0)


def _refused(folder: Path) -> None:
    """An index that names a tensor which its shard lacks: every byte is as published, and no engine starts with it."""
    content = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    content["weight_map"]["layers.0.lab.refused.weight"] = shard_name(3)
    _write(folder / INDEX, json.dumps(content, indent=2).encode())


KINDS: dict[str, Callable[[Path], None]] = {
    "same": lambda _folder: None,
    "small": _small,
    "shard": _shard,
    "chunk": _chunk,
    "shards": _shards,
    "engram": _engram,
    "refused": _refused,
}


def _rewrite(path: Path, seed: int) -> None:
    """Other data behind the same header, so that the file stays a valid one of the same size."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    _write(path, content[:start] + random.Random(f"{path.name}:{seed}").randbytes(len(content) - start))


def _write(path: Path, content: bytes) -> None:
    """Replace a name; the base keeps its file."""
    path.unlink()
    path.write_bytes(content)


def make(base: Path, out: Path, kind: str) -> None:
    """Make the variant in out, which is replaced."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for path in sorted(base.iterdir()):
        os.link(path, out / path.name)
    KINDS[kind](out)
    files = [digests(path) for path in sorted(out.iterdir())]
    (out / published.NAME).write_text(published.render(base.name, files), encoding="utf-8")


def digests(path: Path) -> published.Digests:
    """What publishing computes of a file."""
    sha, whole, chunks = hashlib.sha256(), 0, []
    with path.open("rb") as handle:
        while block := handle.read(CHUNK):
            sha.update(block)
            whole = checksums.crc64nvme(block, whole)
            chunks.append(f"{checksums.crc64nvme(block):016x}")
    return published.Digests(path.name, path.stat().st_size, sha.hexdigest(), f"{whole:016x}", tuple(chunks))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lab/checkpoint_variants.py", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="folder that checkpoint.py generate made")
    parser.add_argument("--out", type=Path, required=True, help="folder to make; what is there is replaced")
    parser.add_argument("--kind", choices=sorted(KINDS), required=True, help="what changes")
    options = parser.parse_args(arguments)
    make(options.base, options.out, options.kind)
    print(f"{options.out}: {options.kind} of {options.base}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
