#!/usr/bin/env python3
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a small checkpoint with the names, structure and proportions of DeepSeek-V4.1-Flash EXL3, for the lab.

`generate --out DIR` is idempotent: DIR.stamp.json beside DIR says what it was made from. The same arguments give the same
bytes, always; a file keeps its bytes from one revision to the next unless the revision changes it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if (
    __name__ == "__main__"
):  # run by path, from any directory: this checkout's folders are the packages `lab` and `plugins`
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lab import checkpoint_content as content
from lab.checkpoint_inventory import (
    BODY,
    ENGRAM,
    LAYOUTS,
    SHARDS,
    TRUE_SIZES,
    Tensor,
    arranged,
    file_names,
    header,
    shard_name,
)

GENERATOR = 1  # part of the stamp: raise it when the same arguments begin to give other bytes


def generate(out: Path, recipe: content.Recipe) -> bool:
    """Make the checkpoint in out unless it is there already; whether anything was written."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with (out.parent / f"{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two labs of one checkout may want the same directory at once
        stamp = _stamp_path(out)
        wanted = {"generator": GENERATOR, **json.loads(json.dumps(asdict(recipe)))}
        if _current(out, stamp, wanted):
            return False
        stamp.unlink(missing_ok=True)
        building, old = (out.parent / f"{out.name}.{part}" for part in ("building", "old"))
        for leftover in (building, old):
            shutil.rmtree(leftover, ignore_errors=True)
        building.mkdir()
        _write_all(building, recipe)
        sizes = {entry.name: entry.stat().st_size for entry in sorted(building.iterdir())}
        if out.exists():
            out.rename(old)
        building.rename(out)
        shutil.rmtree(old, ignore_errors=True)
        _write_atomically(stamp, json.dumps({"recipe": wanted, "files": sizes}, indent=1) + "\n")
    return True


def _stamp_path(out: Path) -> Path:
    return out.parent / f"{out.name}.stamp.json"


def _current(out: Path, stamp: Path, wanted: dict[str, Any]) -> bool:
    try:
        held = json.loads(stamp.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    if held.get("recipe") != wanted or not out.is_dir():
        return False
    return bool({entry.name: entry.stat().st_size for entry in out.iterdir()} == held.get("files"))


def _write_all(directory: Path, recipe: content.Recipe) -> None:
    config = content.scaled_config(recipe.scale)
    shards = {
        shard_name(number): content.shard_tensors(config, number, recipe.scale) for number in range(1, SHARDS + 1)
    }
    sums = []
    for number, (name, tensors) in enumerate(shards.items(), start=1):
        digest = hashlib.md5(usedforsecurity=False)
        if number in ENGRAM:
            _write_engram(directory / name, recipe, tensors)
            continue
        with (directory / name).open("wb") as handle:
            head = header(tensors)
            handle.write(head)
            digest.update(head)
            for chunk in content.random_bytes(recipe, name, sum(tensor.size for tensor in tensors)):
                handle.write(chunk)
                digest.update(chunk)
        if number in BODY:
            sums.append(f"{digest.hexdigest()}  {name}\n")
    for name, data in content.small_files(recipe, config, shards).items():
        (directory / name).write_bytes(data)
    (directory / "MD5SUMS.body").write_text("".join(sums), encoding="ascii")


def _write_engram(path: Path, recipe: content.Recipe, tensors: list[Tensor]) -> None:
    """A shard whose tensors have the same bytes wherever the layout puts them."""
    places = arranged(tensors, recipe.layout)
    head = header(places)
    begin = dict(
        zip((tensor.name for tensor in places), itertools.accumulate(_sizes(places), initial=len(head)), strict=False)
    )
    parts = content.random_bytes(recipe, path.name, sum(_sizes(tensors)))
    left = memoryview(b"")
    with path.open("wb") as handle:
        handle.write(head)
        for tensor in tensors:
            handle.seek(begin[tensor.name])
            missing = tensor.size
            while missing:
                left = left or memoryview(next(parts))
                handle.write(left[:missing])
                missing, left = missing - len(left[:missing]), left[missing:]


def _sizes(tensors: list[Tensor]) -> list[int]:
    return [tensor.size for tensor in tensors]


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab/checkpoint.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("generate", help="make the 54 files, unless they are there already")
    make.add_argument("--out", type=Path, required=True, help="directory to make or to bring up to date")
    make.add_argument("--seed", type=int, default=1, help="decides the weights' bytes (default: 1)")
    make.add_argument(
        "--revision", type=int, default=1, help="1 or more; a later one differs in a few files (default: 1)"
    )
    size = make.add_mutually_exclusive_group()
    size.add_argument(
        "--total-mib", type=float, default=content.DEFAULT_MIB, help="size of all files (default: %(default)s)"
    )
    size.add_argument("--scale", type=float, help="ratio to the true size instead, 1 gives 460 GB")
    make.add_argument(
        "--change",
        action="append",
        metavar="NAME",
        help=f"file that this revision changes, may be repeated (default: {', '.join(content.DEFAULT_CHANGE)})",
    )
    make.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="official",
        help="order of the tensors in the Engram shards (default: official)",
    )
    commands.add_parser("names", help="print the 54 file names")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "names":
        print("\n".join(file_names()))
        return 0
    scale = options.scale if options.scale is not None else options.total_mib * (1 << 20) / sum(TRUE_SIZES)
    recipe = content.Recipe(
        options.seed, options.revision, scale, tuple(options.change or content.DEFAULT_CHANGE), options.layout
    )
    problems = content.check(recipe)
    if problems:
        print("\n".join(f"checkpoint.py: {problem}" for problem in problems), file=sys.stderr)
        return 2
    try:
        written = generate(options.out, recipe)
    except OSError as error:
        print(f"checkpoint.py: cannot write {error.filename or options.out}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{options.out}: {'written' if written else 'is current'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
