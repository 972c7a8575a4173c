# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""engram_rows on a node, ended by SIGKILL at twenty moments, and with bits that flip on the way: engram-local.json tells of rows that are
there, or is not there.

Runs inside the controller namespace of a freshly booted lab (`make engram-full`). Every run changes the number of ranks, so that each
begins with rows that stay, rows that are fetched and read a second time, and rows that go.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess

import pytest
from test_engram import ADDRESS, BASE, PORT, SERVER, SOURCE, look, owned_of, proxy

from site_run import CHECKOUT, INVENTORY, on

pytestmark = pytest.mark.full

DIRECTORY = f"{BASE}/rows/engram"
LOCK = f"{BASE}/rows/staging/.lock"
#: Bytes a second: slow enough for a kill to fall anywhere.
RATE = 20_000_000
KILLS = 20
#: On the node: waits for the process that holds the lock, and kills it after so many seconds; prints for how long it was there.
KILLER = """
import os, signal, sys, time
lock, after = sys.argv[1], float(sys.argv[2])

def holder():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f"/proc/{name}/fd/{fd}") == lock for fd in os.listdir(f"/proc/{name}/fd")):
                return int(name)
        except OSError:
            continue

until = time.monotonic() + 60
while not (found := holder()) and time.monotonic() < until:
    time.sleep(0.01)
began = time.monotonic()
while os.path.exists(f"/proc/{found}") and time.monotonic() - began < after:
    time.sleep(0.002)
if os.path.exists(f"/proc/{found}"):
    os.kill(found, signal.SIGKILL)
    print("killed", end=" ")
print(time.monotonic() - began)
"""


def start(ranks, rate=0, **variables):
    argv = ["ansible-playbook", "tests/lab/playbooks/engram_rows.yml", "-i", str(INVENTORY / "ring.yml")]
    argv += ["-e", json.dumps({"ranks": ranks, "rate": rate, **variables})]
    return subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(ranks, rate=0):
    process = start(ranks, rate)
    output, _none = process.communicate(timeout=120)
    assert process.returncode == 0, output[-3000:]


def watch(after):
    """Whether the process was killed, and seconds that it was there."""
    script = base64.b64encode(KILLER.encode()).decode()
    words = on("spark1", f"echo {script} | base64 -d | python3 - {LOCK} {after}").split()
    return words[0] == "killed", float(words[-1])


def truthful():
    """The ranks that the record tells of, every row of it compared; 0 where there is none."""
    if on("spark1", f"test -e {DIRECTORY}/engram-local.json && echo yes || true") != "yes":
        return 0
    found = look("spark1", DIRECTORY)
    assert found["holes"] and found["rows"] == owned_of(SOURCE, found["record"])
    return found["record"]["tp_size"]


def test_a_run_killed_at_twenty_moments():
    chance, lasts, ends = random.Random(5), {}, []
    finish(3)
    for ranks in (2, 3):
        process = start(ranks, RATE)
        _killed, lasts[ranks] = watch(60)
        process.communicate(timeout=120)
        assert truthful() == ranks
    ranks = 3
    while sum(killed for _ranks, killed, _seconds, _told in ends) < KILLS:
        assert len(ends) < 2 * KILLS, ends
        ranks = 5 - ranks
        process = start(ranks, RATE)
        killed, seconds = watch(lasts[ranks] * chance.uniform(0, 0.95))
        process.communicate(timeout=120)
        told = truthful()
        ends.append((ranks, killed, round(seconds, 2), told))
        assert told in ((0, 2, 3) if killed else (ranks,))
        finish(ranks)
        assert truthful() == ranks
    print(f"whole runs take {lasts} s; to ranks, killed, after seconds, ranks of the record then: {ends}")
    assert sum(told == 0 for _ranks, _killed, _seconds, told in ends) >= KILLS // 2


def test_a_run_killed_while_one_slice_stays():
    """One slice is deleted and comes again, the other one is neither moved nor fetched."""
    finish(3)
    stays, comes = (f"{DIRECTORY}/model-000{shard}-of-00048.safetensors" for shard in (47, 48))
    before = on("spark1", f"stat -c '%i %Y' {stays}")
    on("spark1", f"rm {comes}")
    process = start(3, RATE)
    _killed, lasts = watch(60)
    process.communicate(timeout=120)
    told = []
    for share in (0.3, 0.6, 0.9):
        on("spark1", f"rm {comes}")
        process = start(3, RATE)
        watch(lasts * share)
        process.communicate(timeout=120)
        told.append(on("spark1", f"test -e {DIRECTORY}/engram-local.json && echo yes || true"))
        finish(3)
        assert truthful() == 3 and on("spark1", f"stat -c '%i %Y' {stays}") == before
    assert "" in told, told


@pytest.mark.parametrize("shard", [47, 48])
@pytest.mark.parametrize("number", [0, 3])
def test_a_flipped_bit_never_gets_a_record(shard, number):
    """Nobody published checksums of chunks, and nothing but the defaults is set. One answer of the first reading has one wrong bit."""
    on("spark1", f"rm -rf {BASE}/rows")
    file, chance = f"model-000{shard}-of-00048.safetensors", random.Random(number)

    def flip(_asked, reply):
        reply.body[chance.randrange(len(reply.body))] ^= 1 << chance.randrange(8)

    with proxy(
        lambda asked: flip if (asked.node, asked.file, asked.number) == (ADDRESS["spark1"], file, number) else None
    ) as between:
        process = start(3, checkpoint_endpoint_url=f"http://{SERVER}:{PORT}")
        output, _none = process.communicate(timeout=120)
        assert len(between.hurt) == 1 and process.returncode != 0 and "not the same at a second reading" in output, (
            output[-3000:]
        )
        assert truthful() == 0
    finish(3)
    assert truthful() == 3
