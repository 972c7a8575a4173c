# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The staging process when its controller goes away, and the run after it."""

from __future__ import annotations

import os
import random
import time

import pytest
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_process

PART = 8 << 20
SIZES = {"large": 4 * PART, "small": 70_000}
BODIES = {path: random.Random(path).randbytes(size) for path, size in SIZES.items()}
#: All would take 34 s at this rate, in bytes a second: whoever ends within ten did not wait for that.
SLOWLY = {"workers": 2, "part_mib": PART >> 20, "rate_limit": 1 << 20}
QUICKLY = {"workers": 2, "part_mib": PART >> 20}


@pytest.fixture
def store():
    with object_server.serving(**BODIES) as running:
        yield running


@pytest.fixture
def plan(store):
    files = [
        manifest.File(path, len(body), store.etag(path), f"crc64nvme:{checksums.crc64nvme(body):016x}")
        for path, body in BODIES.items()
    ]
    return manifest.make("tiny", "", files).to_dict()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def begun(root):
    """Wait until the first file is there."""
    until = time.monotonic() + 20
    while not list(root.glob("tiny/staging/*/small")):
        assert time.monotonic() < until
        time.sleep(0.05)


def staging(root):
    return sorted(path.relative_to(root / "tiny/staging").as_posix() for path in root.glob("tiny/staging/**/*"))


def resumed(store, plan, root):
    """What the next run fetches; it ends whole."""
    store.seen.clear()
    result = stage_process.finish(stage_process.start(plan, store.sources(), root, **QUICKLY))
    assert result["changed"], result
    directory = root / "tiny/revisions" / plan["revision"]
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == BODIES
    assert staging(root) == [".lock"]
    return {path for path, _headers in store.seen}


def kept(plan, root):
    """Partial file and journal are there, addresses, progress and lease are not."""
    revision = plan["revision"]
    wanted = {".lock", revision, f"{revision}/large.partial", f"{revision}/small", f"{revision}.journal"}
    assert set(staging(root)) == wanted
    assert not root.with_name("root.sources").exists()
    return True


def test_a_process_whose_result_nobody_reads_ends(store, plan, root):
    process = stage_process.start(plan, store.sources(), root, **SLOWLY)
    begun(root)
    process.stdout.close()
    process.wait(timeout=10)
    said = process.stderr.read()
    process.stderr.close()
    assert "the controller is gone: nobody reads the result" in said and "signature" not in said
    assert kept(plan, root)
    assert resumed(store, plan, root) == {"large"}


def test_a_process_whose_lease_is_not_renewed_ends_and_says_so(store, plan, root):
    began = time.monotonic()
    result = stage_process.finish(stage_process.start(plan, store.sources(), root, lease_s=2, **SLOWLY), timeout=15)
    assert 2 < time.monotonic() - began < 15
    assert result["failed"] and "\nstopped, because the controller gave no sign for " in result["msg"]
    assert "(limit 2 s)" in result["msg"] and "are kept for the next run" in result["msg"]
    assert kept(plan, root)
    assert resumed(store, plan, root) == {"large"}


def test_a_process_whose_lease_is_renewed_goes_on(store, plan, root):
    process = stage_process.start(plan, store.sources(), root, lease_s=2, **SLOWLY)
    begun(root)
    lease = root / "tiny/staging" / f"{plan['revision']}.lease"
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert process.poll() is None
        os.utime(lease)
        time.sleep(0.2)
    process.stdout.close()
    process.wait(timeout=10)
    process.stderr.close()


def test_the_next_run_waits_for_one_whose_controller_is_gone(store, plan, root):
    old = stage_process.start(plan, store.sources(), root, lease_s=4, **SLOWLY)
    begun(root)
    assert resumed(store, plan, root) == {"large"}
    assert stage_process.finish(old)["failed"]


def test_the_next_run_waits_for_a_short_one_without_a_lease(store, plan, root):
    old = stage_process.start(plan, store.sources(), root, **SLOWLY)
    begun(root)
    second = stage_process.start(plan, store.sources(), root, **QUICKLY)
    time.sleep(7)
    assert second.poll() is None
    old.kill()
    old.communicate(timeout=10)
    assert not stage_process.finish(second).get("failed")


def test_two_runs_at_once_are_told(store, plan, root):
    old = stage_process.start(plan, store.sources(), root, lease_s=60, **SLOWLY)
    begun(root)
    second = stage_process.start(plan, store.sources(), root, **QUICKLY)
    lease = root / "tiny/staging" / f"{plan['revision']}.lease"
    while second.poll() is None:
        os.utime(lease)  # the first one is still followed
        time.sleep(0.2)
    result = stage_process.finish(second)
    assert result["failed"] and "another run is staging tiny on this node" in result["msg"]
    assert "waited 20 s" in result["msg"]
    old.kill()
    old.communicate(timeout=10)
