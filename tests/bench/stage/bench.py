# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages one checkpoint from one server with this project and with other copiers, in turns, and prints what it took.

    tests/bench/stage/bench.py --size-mib 4096 --rounds 3 --servers s3,nginx,nginx+tls --work DIR --bin DIR

Needs aria2c, curl, fincore and openssl on the machine, and nginx, s5cmd, rclone and aws in PATH or --bin (`peers` puts them there). See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import json
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import hashing, manifest
from measure import Figures, Sample, alone, figures, run
from servers import Server, nginx, seaweed
from tools import TOOLS, Job

CHECKOUT = Path(__file__).resolve().parents[3]
OURS = TOOLS[0]
MIB = 1 << 20


def checkpoint(work: Path, size_mib: int) -> Path:
    """The lab's 54 files at this size."""
    out = work / f"checkpoint-{size_mib}"
    argv = [sys.executable, CHECKOUT / "lab" / "checkpoint.py", "generate", "--out", out, "--total-mib", str(size_mib)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return out


def plan(source: Path, algorithm: str) -> dict[str, Any]:
    """As checkpoint_plan makes it, without an ETag, so that one plan serves both servers."""
    files = []
    for path in sorted(source.iterdir()):
        digest = hashing.file_digest(path, f"{algorithm}:", checksums.crc64nvme)
        files.append(manifest.File(path.name, path.stat().st_size, "", digest))
    return manifest.make("bench", "", files).to_dict()


def same(source: Path, target: Path) -> bool:
    found = {path.name: path for path in target.rglob("*") if path.is_file()}
    return all(filecmp.cmp(path, found[path.name], shallow=False) for path in source.iterdir())


def rounds(server: Server, source: Path, options: argparse.Namespace) -> list[Figures]:
    """Every tool in turn, so that what else happens on the machine meets all of them."""
    wanted = plan(source, options.digest)
    scratch = options.work / "scratch"
    scratch.mkdir(exist_ok=True)
    tools = [
        tool for tool in TOOLS if server.name in tool.servers and (not options.tools or tool.name in options.tools)
    ]
    samples: dict[str, list[Sample]] = {tool.name: [] for tool in tools}
    for number in range(options.rounds):
        for tool in tools[number % len(tools) :] + tools[: number % len(tools)]:
            job = Job(server, wanted, options.work / "target", scratch, options.bin)
            samples[tool.name].append(run(tool, job))
            if number == 0 and not same(source, job.target):
                raise RuntimeError(f"{tool.name}: wrong bytes")
            print(
                f"{server.name} round {number + 1} {tool.name}: {samples[tool.name][-1]}", file=sys.stderr, flush=True
            )
    return [figures(tool, samples[tool.name]) for tool in tools]


def no_op(server: Server, source: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds and bytes of a second run of ours, with everything in place."""
    job = Job(server, plan(source, options.digest), options.work / "target", options.work / "scratch", options.bin)
    run(OURS, job)
    command = OURS.command(job)
    before, started = server.sent(), time.monotonic()
    subprocess.run(command.argv, input=command.stdin, text=True, check=True, capture_output=True)
    return {"seconds": round(time.monotonic() - started, 2), "bytes": server.sent() - before}


def table(rows: list[Figures], total: int) -> str:
    """Markdown. The ratios are those to the best of the others."""
    others = [row for row in rows if row.tool != OURS.name]
    text = "| tool | wall until durable, s | CPU, s | CPU, s/GiB | peak RSS, MiB | page cache left, MiB | sent, MiB | verified |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for row in rows:
        text += (
            f"| {row.tool} | {row.wall:.2f} ({min(row.walls):.2f}-{max(row.walls):.2f}) | {row.cpu:.2f} | "
            f"{row.cpu / (total / 2**30):.2f} | {row.rss // MIB} | {row.cached // MIB} | {row.sent // MIB} | {row.verified} |\n"
        )
    mine = next((row for row in rows if row.tool == OURS.name), None)
    if mine and others:
        fastest, leanest = min(others, key=lambda row: row.wall), min(others, key=lambda row: row.cpu)
        text += (
            f"\nWall {mine.wall / fastest.wall:.2f} x the fastest other ({fastest.tool}), CPU {mine.cpu / leanest.cpu:.2f} x "
            f"the leanest other ({leanest.tool}), page cache left {100 * mine.cached / total:.2f} % of the bytes.\n"
        )
    return text


def machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    cores = len(list(Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
    return f"{model}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size-mib", type=int, default=4096, help="bytes of the 54 files together (default: %(default)s MiB)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", default="s3,nginx", help="of s3, nginx, nginx+tls (default: %(default)s)")
    parser.add_argument(
        "--digest", default="crc64nvme", help="what ours verifies: crc64nvme, md5, sha256 (default: %(default)s)"
    )
    parser.add_argument("--tools", type=lambda text: text.split(","), default=[], help="names, default all")
    parser.add_argument(
        "--work", type=Path, required=True, help="directory on the disk to measure; twice the size free"
    )
    parser.add_argument("--bin", type=Path, required=True, help="directory with s5cmd, rclone and aws")
    parser.add_argument(
        "--lock", type=Path, help="file to lock while a server is measured, on a machine where others measure too"
    )
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(1))  # servers end with the benchmark
    options.work = options.work.resolve()  # servers and tools have working directories of their own
    options.work.mkdir(parents=True, exist_ok=True)
    source = checkpoint(options.work, options.size_mib)
    total = sum(path.stat().st_size for path in source.iterdir())
    print(f"{machine()}; {total / MIB:.0f} MiB in {len(list(source.iterdir()))} files; {options.rounds} rounds\n")
    found: dict[str, Any] = {"machine": machine(), "bytes": total}
    for name in options.servers.split(","):
        made = seaweed(options.work, source) if name == "s3" else nginx(options.work, source, name == "nginx+tls")
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(made)
            stack.enter_context(alone(options.lock))
            rows = rounds(server, source, options)
            again = no_op(server, source, options)
        found[name] = {"rows": [asdict(row) for row in rows], "no_op": again}
        print(
            f"### {name}, {total / MIB:.0f} MiB\n\n{table(rows, total)}\nA second run: {again['bytes']} bytes, {again['seconds']} s.\n",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
