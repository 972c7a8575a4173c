# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All-reduce over the group, with NCCL on GPUs or gloo on CPUs: is the sum right, and how fast is it?

One process a rank. Rank, size, and where to meet come from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and LOCAL_RANK, as torchrun sets
them, or from --env. The module fabric_allreduce gives the whole text on the standard input of a Python that has torch, so that
nothing has to be mounted into a container. The last line on the standard output is MARK and a JSON object. Needs Python 3.10 or
newer and torch, nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

MARK = "gb10-ring-allreduce: "
PERIOD = 251  # a prime: a piece of the buffer that ends up in another place does not fit there
ITEM = 4  # bytes of a float32, which holds every sum here exactly
COPIES = 4  # buffer, expected values and what comparing them takes, in units of the buffer
GRACE = 5  # seconds between the end that tells and the one that does not
TIMED_AT_MOST = 30  # a buffer is summed in place this often: 8 ranks ** 35 still is a float32


class RunError(Exception):
    """A reason to give up; its text is the message."""


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ring_allreduce.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--sizes", default="1048576,16777216,268435456", help="bytes, with commas between")
    parser.add_argument("--iterations", type=int, default=20, help="timed all-reduces a size")
    parser.add_argument("--memory-share", type=float, default=0.2, help="of the free memory, at most, for all buffers")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which the process ends itself")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="set before torch is loaded")
    given = parser.parse_args(argv)
    try:
        given.sizes = sorted({int(size) for size in given.sizes.split(",")})
    except ValueError:
        parser.error(f"--sizes {given.sizes}: expected whole numbers of bytes with commas between")
    if not all("=" in assignment for assignment in given.env):
        parser.error("--env: expected NAME=VALUE")
    if given.sizes[0] < ITEM or not 1 <= given.iterations <= TIMED_AT_MOST or not 0 < given.memory_share <= 1:
        parser.error(
            f"sizes start at {ITEM}, iterations are 1 to {TIMED_AT_MOST}, the share of memory is above 0, at most 1"
        )
    return given


def available_memory(text: str) -> int:
    """MemAvailable of /proc/meminfo in bytes."""
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise RunError("/proc/meminfo has no MemAvailable")


def chosen_sizes(sizes: list[int], limit: int) -> list[int]:
    """The sizes of which all copies fit below the limit, in whole items."""
    return [size // ITEM * ITEM for size in sizes if size * COPIES <= limit]


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s (10^9) through the slowest link: nccl-tests' formula for all-reduce, bytes / time x 2 (n - 1) / n."""
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


class Group:
    """This rank's torch, device and process group."""

    def __init__(self, backend: str, timeout: float) -> None:
        # Only now: NCCL's settings have to be in the environment before, and a Python without torch is an error with a text.
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415

        self.torch, self.dist, self.backend = torch, dist, backend
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if backend == "nccl" and not torch.cuda.is_available():
            raise RunError("torch sees no GPU; nccl needs one a rank")
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
        extra: dict[str, Any] = {}
        if backend == "nccl":
            torch.cuda.set_device(self.device)
            extra["device_id"] = self.device
        # rank and address are in the environment
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout), **extra)

    def free_memory(self) -> int:
        free = available_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
        if self.backend == "nccl":
            # On unified memory both are the same pool, and the GPU's figure leaves out what the page cache could give back.
            return min(free, self.torch.cuda.get_device_properties(self.device).total_memory)
        return free

    def agreed(self, value: float, how: str) -> float:
        """The least or the most ("MIN", "MAX") of all ranks' values."""
        tensor = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(tensor, op=getattr(self.dist.ReduceOp, how))
        return float(tensor.item())

    def pattern(self, items: int, shift: int, factor: int) -> Any:
        """factor x (position modulo PERIOD) + shift, as float32."""
        values = self.torch.arange(items, dtype=self.torch.int32, device=self.device)
        return values.remainder_(PERIOD).mul_(factor).add_(shift).to(self.torch.float32)

    def wrong_items(self, items: int) -> int:
        """Sum a known pattern of every rank, and count the items of the sum that are not what they must be."""
        buffer = self.pattern(items, self.rank, 1)
        self.dist.all_reduce(buffer)
        expected = self.pattern(items, self.size * (self.size - 1) // 2, self.size)
        return int((buffer != expected).sum().item())

    def wait(self) -> None:
        if self.backend == "nccl":
            self.torch.cuda.synchronize(self.device)

    def seconds(self, buffer: Any) -> float:
        self.wait()
        started = time.perf_counter()
        self.dist.all_reduce(buffer)
        self.wait()
        return time.perf_counter() - started


def measure(group: Group, size: int, iterations: int) -> dict[str, Any]:
    """One size: right before and after the load, and the median time of the slowest rank."""
    items = size // ITEM
    wrong = group.wrong_items(items)
    buffer = group.torch.ones(items, dtype=group.torch.float32, device=group.device)
    for _warm_up in range(3):
        group.seconds(buffer)
    group.dist.barrier()
    times = [group.seconds(buffer) for _timed in range(iterations)]
    del buffer
    seconds = group.agreed(statistics.median(times), "MAX")
    wrong += group.wrong_items(items)
    return {
        "bytes": size,
        "seconds": seconds,
        "algorithm_gbytes_s": size / seconds / 1e9,
        "bus_gbytes_s": bus_bandwidth(size, seconds, group.size),
        "wrong_items": int(group.agreed(wrong, "MAX")),
    }


def run(given: argparse.Namespace) -> dict[str, Any]:
    group = Group(given.backend, given.timeout)
    free = group.free_memory()
    limit = int(group.agreed(free * given.memory_share, "MIN"))
    sizes = chosen_sizes(given.sizes, limit)
    if not sizes:
        raise RunError(
            f"no size fits: {COPIES} x {given.sizes[0]} bytes are needed, the rank with the least free memory allows {limit}"
        )
    group.wrong_items(1)  # opens the connections
    result = {
        "rank": group.rank,
        "ranks": group.size,
        "backend": given.backend,
        "torch": group.torch.__version__,
        "device": group.torch.cuda.get_device_name(group.device) if given.backend == "nccl" else "cpu",
        "library": ".".join(map(str, group.torch.cuda.nccl.version())) if given.backend == "nccl" else "gloo",
        "free_bytes": free,
        "limit_bytes": limit,
        "left_out": [size for size in given.sizes if size * COPIES > limit],
        "results": [measure(group, size, given.iterations) for size in sizes],
    }
    group.dist.barrier()  # nobody leaves while another may still read from him
    return result


def tell(result: dict[str, Any]) -> None:
    """On a line of its own, whatever a library wrote before."""
    sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()


def watch(timeout: float) -> None:
    """End the process when it takes too long: a collective that hangs answers to nothing else, in a container least of all."""

    def end() -> None:
        tell({"error": f"did not end within {timeout:g} s; a rank is missing, or hangs in a collective"})
        os._exit(3)

    # A library that hangs without giving Python back is ended by the kernel.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(timeout) + GRACE)
    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()


def main(argv: list[str]) -> NoReturn:
    given = arguments(argv)
    os.environ.update(assignment.split("=", 1) for assignment in given.env)
    # The rendezvous of a few ranks does not need libuv, and not every torch has it.
    os.environ.setdefault("USE_LIBUV", "0")
    watch(given.timeout)
    try:
        result = run(given)
    except ImportError as error:
        result = {"error": f"this Python ({sys.executable}) cannot import torch: {error}"}
    except KeyError as error:
        result = {"error": f"the environment variable {error.args[0]} is not set"}
    except (RunError, RuntimeError, OSError, ValueError) as error:
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    tell(result)
    wrong = "error" in result or any(size["wrong_items"] for size in result["results"])
    # Not by the interpreter's own end: the threads of a process group, of a broken one above all, may keep it from coming.
    os._exit(int(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
