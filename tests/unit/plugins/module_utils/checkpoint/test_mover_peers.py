# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mover with other nodes to ask before the store: they may fail, lie, be late or slow."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import CHUNK
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.rate import Bucket
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.mover_run import (
    BODY,
    FAST,
    LONG,
    PARTS,
    SIZE,
    Run,
    fetch,
    file,
    wanted,
    whole,
)
from ansible_collections.gb10.ring.tests.unit.fixtures.mover_run import long_file as make_long_file
from ansible_collections.gb10.ring.tests.unit.fixtures.object_server import answer, drop_after, ignore_range, stall


@pytest.fixture
def store():
    with object_server.serving(shard=BODY, empty=b"") as running:
        yield running


@pytest.fixture
def long_file(store):
    store.objects["long"] = LONG
    return make_long_file()


@pytest.fixture
def peer():
    with object_server.serving(shard=BODY) as running:
        running.etags["shard"] = '"an etag of its own"'
        yield running


def both(store, peer, patience_s=0.0):
    return (Source(peer.url("shard"), "peer", patience_s), Source(store.url("shard")))


def test_a_peer_is_asked_first_and_not_for_the_etag(store, peer, tmp_path):
    run = fetch(store, tmp_path, sources=both(store, peer))
    assert whole(run) and store.seen == []
    assert "If-Match" not in peer.requests("shard")[0]
    assert run.meter.numbers()["peer_bytes"] == SIZE and run.meter.numbers()["s3_bytes"] == 0


@pytest.mark.parametrize(
    "faults",
    [
        [answer(404, "")] * 9,
        [answer(403, "")] * 9,
        [answer(500, "")] * 9,
        [drop_after(1000)] * 9,
        [ignore_range] * 9,
        [stall] * 9,
    ],
)
def test_a_peer_that_fails_costs_a_fallback(store, peer, tmp_path, faults):
    peer.faults["shard"] = faults
    run = fetch(store, tmp_path, sources=both(store, peer), limits=replace(FAST, read=0.3))
    assert whole(run) and sorted(store.ranges("shard")) == PARTS


def test_a_lying_peer_costs_its_parts_and_is_not_asked_again(store, peer, tmp_path):
    peer.objects["shard"] = peer.objects["second"] = bytes(SIZE)
    store.objects["second"] = BODY
    second = file("second", etag='"etag-of-second"')
    sources = (Source(peer.url("second"), "peer"), Source(store.url("second")))
    run = Run(
        tmp_path,
        wanted(store, tmp_path, file(), both(store, peer)),
        wanted(store, tmp_path, second, sources),
        workers=1,
    ).go()
    assert run.outcome.failures == {} and (tmp_path / "sub/second").read_bytes() == BODY
    assert len(peer.seen) <= 2 * len(PARTS)


def test_a_lying_peer_is_found_out_by_a_chunk(store, peer, tmp_path, long_file):
    peer.objects["long"] = bytes(len(LONG))
    sources = (Source(peer.url("long"), "peer"), Source(store.url("long")))
    assert whole(fetch(store, tmp_path, long_file, sources=sources, part_size=CHUNK, workers=1), LONG, "long")
    assert len(peer.requests("long")) == 1


def test_a_peer_that_has_not_got_it_yet_is_waited_for(store, peer, tmp_path):
    peer.faults["shard"] = [answer(404, "")] * 3
    run = fetch(store, tmp_path, sources=both(store, peer, 3), workers=1)
    assert whole(run) and store.seen == []


def test_patience_has_an_end(store, peer, tmp_path):
    peer.faults["shard"] = [answer(404, "")] * 1000
    assert whole(fetch(store, tmp_path, sources=both(store, peer, 0.2)))
    assert sorted(store.ranges("shard")) == PARTS


def test_a_peer_that_will_not_get_it_is_not_waited_for_and_asked_for_other_files(store, peer, tmp_path):
    store.objects["second"] = peer.objects["second"] = BODY
    peer.faults["shard"] = [answer(410, "")] * 9
    second = (Source(peer.url("second"), "peer", 60), Source(store.url("second")))
    run = Run(
        tmp_path,
        wanted(store, tmp_path, file(), both(store, peer, 60)),
        wanted(store, tmp_path, file("second"), second),
        workers=1,
    ).go()
    assert run.outcome.failures == {} and sorted(store.ranges("shard")) == PARTS and store.ranges("second") == []


def test_a_peer_that_does_not_answer_is_not_waited_for_as_long_as_one_that_does(store, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{probe.getsockname()[1]}/shard"
    sources = (Source(gone, "peer", 3600), Source(store.url("shard")))
    assert whole(fetch(store, tmp_path, sources=sources, limits=replace(FAST, unreachable=0.2)))
    assert sorted(store.ranges("shard")) == PARTS


@pytest.mark.parametrize(("rate", "requests"), [(0, 4), (20_000_000, 0)], ids=["slow", "limited by ourselves"])
def test_a_slow_peer_costs_a_fallback(store, peer, tmp_path, rate, requests):
    limits = replace(FAST, slow=0.0, slow_rate=1 << 50)
    run = fetch(store, tmp_path, sources=both(store, peer), limits=limits, bucket=Bucket(rate))
    assert whole(run) and len(store.ranges("shard")) == requests
