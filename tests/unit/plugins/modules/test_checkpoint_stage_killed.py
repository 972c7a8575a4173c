# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kill -9 of the staging process at random points, and the run after it."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_process

PART = 8 << 20
WORKERS = 3
SIZES = {"large": 3 * PART + 12_345, "middle": PART + 1, "small": 70_000, "tiny": 5, "empty": 0}
BODIES = {path: random.Random(path).randbytes(size) for path, size in SIZES.items()}
OPTIONS = {"workers": WORKERS, "part_mib": PART >> 20}
#: Bytes a second: the transfer takes about as long as everything around it, so that kills meet both.
RATE = 60_000_000


@pytest.fixture(scope="module")
def store():
    with object_server.serving(**BODIES) as running:
        yield running


@pytest.fixture(scope="module")
def plan(store):
    files = [
        manifest.File(path, len(body), store.etag(path), f"crc64nvme:{checksums.crc64nvme(body):016x}")
        for path, body in BODIES.items()
    ]
    return manifest.make("tiny", "", files).to_dict()


@pytest.fixture(scope="module")
def duration(store, plan, tmp_path_factory):
    """Seconds that an undisturbed run takes."""
    start = time.monotonic()
    root = tmp_path_factory.mktemp("whole") / "root"
    result = stage_process.finish(stage_process.start(plan, store.sources(), root, rate_limit=RATE, **OPTIONS))
    assert result["changed"], result
    return time.monotonic() - start


def asked(store):
    return Counter((path, headers["Range"]) for path, headers in store.seen)


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("point", range(20))
def test_the_run_after_a_kill_fetches_only_what_was_in_flight(store, plan, duration, tmp_path, point):
    store.seen.clear()
    root = tmp_path / "root"
    process = stage_process.start(plan, store.sources(), root, rate_limit=RATE, **OPTIONS)
    time.sleep(duration * random.Random(point).uniform(0.2, 1.05))
    process.kill()
    process.communicate(timeout=10)
    revisions = root / "tiny/revisions"
    if revisions.exists():
        assert [contents(path) for path in revisions.iterdir()] in ([], [BODIES])
    result = stage_process.finish(stage_process.start(plan, store.sources(), root, **OPTIONS))
    assert not result.get("failed"), result
    # Of both runs together: the server may come to a request of the killed one while the next is at work.
    again = asked(store) - Counter(dict.fromkeys(asked(store), 1))
    assert again.total() <= WORKERS
    assert set(again.values()) <= {1}
    assert contents(revisions / plan["revision"]) == BODIES
    assert sorted(path.name for path in (root / "tiny/staging").iterdir()) == [".lock"]


def test_what_a_kill_after_the_receipt_leaves_is_removed_by_the_next_run(store, plan, tmp_path):
    root = tmp_path / "root"
    stage_process.finish(stage_process.start(plan, store.sources(), root, **OPTIONS))
    staging = root / "tiny/staging"
    (staging / f"{plan['revision']}.journal").write_text("", encoding="utf-8")
    result = stage_process.finish(stage_process.start(plan, store.sources(), root, **OPTIONS))
    assert result["changed"] is False
    assert sorted(path.name for path in staging.iterdir()) == [".lock"]
