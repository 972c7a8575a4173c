# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new revision takes over from one that has rotted on the disk, and from a run that was killed. From a server on loopback."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend, inspection, survey
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.decide import Disk
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server, stage_request

BODIES = {"a.txt": b"small", "b.txt": b"other", "same": bytes(range(256)) * 4096}


@pytest.fixture
def store():
    with object_server.serving(**BODIES) as running:
        yield running


def request(store, root, **more):
    return stage_request.request(store, root, stage_request.planned(store), **more)


def staged(store, root, **more):
    store.seen.clear()
    wanted = request(store, root, **more)
    frontend.stage(wanted)
    return wanted.layout, wanted.manifest.revision


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def fetched(store):
    return sorted({path for path, _headers in store.seen})


def rot(path):
    """Other bytes under the same size and time."""
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    with path.open("r+b") as handle:
        handle.seek(1000)
        handle.write(b"damage")
    os.utime(path, ns=times)


def broken(store, root, path, **more):
    """A run that ends before this file."""
    store.faults[path] = [lambda handler, _body, _start: handler.refuse(403, "AccessDenied") or True] * 50
    with pytest.raises(HostError, match=path):
        staged(store, root, **more)
    store.faults[path] = []


def budget_of(store, root, **more):
    """What a budget with a full verify finds to be damaged, and what has to come then."""
    look = frontend.view(request(store, root, phase="budget", **{"verify": "full", **more}))
    return look.told()["damaged"], look.lacking()


def test_a_full_verify_links_no_file_of_the_active_revision_that_has_rotted(store, tmp_path):
    layout, first = staged(store, tmp_path)
    layout.current.symlink_to(layout.link_text(first))
    rot(layout.revision(first) / "same")
    store.objects["a.txt"] = b"newer"
    assert budget_of(store, tmp_path, verify="recorded") == ({}, ["a.txt"])
    found, lacking = budget_of(store, tmp_path)
    assert (list(found), lacking) == ([f"../{first}/same"], ["a.txt", "same"])
    _layout, second = staged(store, tmp_path, damaged=found)
    assert fetched(store) == ["a.txt", "same"]
    assert contents(layout.revision(second)) == store.objects
    assert budget_of(store, tmp_path) == ({}, [])


def test_a_file_that_rotted_is_linked_from_a_revision_that_has_it_once_more(store, tmp_path):
    layout, first = staged(store, tmp_path)
    older = json.loads(layout.receipt(first).read_text()) | {
        "created": "2020-01-01T00:00:00Z"
    }  # links come from the oldest
    layout.receipt(first).write_text(json.dumps(older))
    store.objects["a.txt"] = b"newer"
    _layout, second = staged(store, tmp_path)
    whole = layout.revision(second) / "same"
    times = (whole.stat().st_atime_ns, whole.stat().st_mtime_ns)
    whole.unlink()
    whole.write_bytes(BODIES["same"])
    os.utime(whole, ns=times)
    rot(layout.revision(first) / "same")
    store.objects["a.txt"] = b"newest"
    found, lacking = budget_of(store, tmp_path)
    assert (list(found), lacking) == ([f"../{first}/same"], ["a.txt"])
    _layout, third = staged(store, tmp_path, damaged=found)
    assert (layout.revision(third) / "same").samefile(whole)


def test_a_link_of_a_killed_run_to_a_file_that_rotted_is_given_up(store, tmp_path):
    layout, first = staged(store, tmp_path)
    store.objects["a.txt"] = b"newer"
    broken(store, tmp_path, "a.txt")
    rot(layout.revision(first) / "same")
    found, lacking = budget_of(store, tmp_path)
    assert (list(found), lacking) == ([f"../{first}/same"], ["a.txt", "same"])
    _layout, second = staged(store, tmp_path, damaged=found)
    assert contents(layout.revision(second)) == store.objects


def test_what_is_linked_is_read_once_an_inode_and_by_a_full_verify_alone(store, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(inspection, "file_digest", lambda path, wanted, *_more: read.append(path.name) or wanted)
    for text in (b"second", b"third"):
        staged(store, tmp_path)
        store.objects["a.txt"] = text
    budget_of(store, tmp_path, verify="recorded")
    assert read == []
    assert budget_of(store, tmp_path) == ({}, ["a.txt"])
    assert sorted(read) == ["b.txt", "same"]


def test_a_full_verify_without_awscrt_does_not_fetch_everything_again(store, tmp_path, monkeypatch):
    """As after a newer Python came onto the node: the library that was unpacked for the one before cannot be imported."""
    staged(store, tmp_path)
    monkeypatch.setattr(frontend, "load_crc64", lambda _path: None)
    with pytest.raises(HostError, match=r"awscrt cannot be imported .* python3 -m zipfile -e WHEEL"):
        budget_of(store, tmp_path)
    assert budget_of(store, tmp_path, verify="recorded") == ({}, [])


# --- a replacement in place that did not end --------------------------------------------------------------------------


def used(root):
    sizes = {path.stat().st_ino: path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file()}
    return sum(sizes.values())


def test_the_budget_counts_what_a_third_revision_takes_over_from_the_second(store, tmp_path, monkeypatch):
    size = 2 << 20
    monkeypatch.setattr(survey, "disk_of", lambda _path: Disk(7 << 20, (7 << 20) - used(tmp_path)))
    store.objects |= {name: name.encode() * (size // 3) for name in ("one", "two")}
    layout, first = staged(store, tmp_path)
    layout.current.symlink_to(layout.link_text(first))
    store.objects |= {name: name.upper().encode() * (size // 3) for name in ("one", "two")}
    broken(store, tmp_path, "two", in_place=True)
    store.objects["a.txt"] = b"third"
    told = frontend.view(request(store, tmp_path, phase="budget", in_place=True)).told()
    assert (told["lacking"], [check["found"] for check in told["checks"] if not check["ok"]]) == (["a.txt", "two"], [])
    assert told["budget"]["reclaimable"] == 0  # what is taken over is nothing to delete
    _layout, third = staged(store, tmp_path, in_place=True)
    assert fetched(store) == ["a.txt", "two"] and contents(layout.revision(third)) == store.objects
