# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import gid_probe, render

EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:0000:0000:0000:0001"
V1, V2 = "IB/RoCE v1", "RoCE v2"


def mapped(address):
    high, low = (f"{int(a):02x}{int(b):02x}" for a, b in (address.split(".")[:2], address.split(".")[2:]))
    return f"0000:0000:0000:0000:0000:ffff:{high}:{low}"


def table(root, device, entries):
    """A GID table as the kernel shows it; kind None: reading the type fails, as it does for an empty slot."""
    port = root / device / "ports/1"
    (port / "gids").mkdir(parents=True, exist_ok=True)
    (port / "gid_attrs/types").mkdir(parents=True, exist_ok=True)
    for index, (gid, kind) in enumerate(entries):
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        if kind:
            (port / "gid_attrs/types" / str(index)).write_text(f"{kind}\n")
    return root


def usual(address):
    return [(LINK_LOCAL, V1), (LINK_LOCAL, V2), (mapped(address), V1), (mapped(address), V2), (EMPTY, None)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (usual("10.100.0.1"), [3]),
        ([(EMPTY, None), *usual("10.100.0.1")], [4]),
        ([*usual("10.9.9.9"), (mapped("10.100.0.1"), V2), (mapped("10.100.0.1"), V1)], [5]),
        ([(mapped("10.100.0.1"), V2), *usual("10.100.0.1")], [0, 4]),
        ([(mapped("10.100.0.1"), V1)], []),
        ([(mapped("10.100.0.1"), None)], []),
        (usual("10.100.0.11"), []),
        ([("garbage", V2)], []),
    ],
)
def test_indexes(tmp_path, entries, expected):
    assert gid_probe.indexes(table(tmp_path, "rocep1s0f0", entries), "rocep1s0f0", "10.100.0.1") == expected


def test_a_device_that_is_not_there(tmp_path):
    assert gid_probe.indexes(tmp_path, "rocep1s0f0", "10.100.0.1") == []


def test_everything_that_is_missing_is_told_at_once(tmp_path):
    table(tmp_path, "a", usual("10.100.0.1"))
    with pytest.raises(gid_probe.ProbeError) as error:
        gid_probe.probe(tmp_path, {"a": "10.100.0.1", "b": "10.100.1.1", "c": "10.100.2.1"})
    assert str(error.value).startswith(
        "b has no RoCE v2 GID for 10.100.1.1; c has no RoCE v2 GID for 10.100.2.1. Expected"
    )


@pytest.mark.parametrize(
    ("found", "expected"), [({"a": [3], "b": [3]}, 3), ({"a": [3, 5], "b": [5]}, 5), ({"a": [4, 3], "b": [3, 4]}, 3)]
)
def test_the_common_index(found, expected):
    assert gid_probe.common(found, ["X"]) == expected


def test_no_common_index():
    with pytest.raises(gid_probe.ProbeError, match=r"X takes one index for all devices, found a \[3\], b \[5\]. Cure"):
        gid_probe.common({"a": [3], "b": [5]}, ["X"])


def test_the_program_on_a_node(tmp_path, monkeypatch, capsys):
    """It stands alone: run as the unit runs it, from the text that is rendered, with Python isolated."""
    for device, address in (("a", "10.100.0.1"), ("b", "10.100.1.1")):
        table(tmp_path / "sys", device, usual(address))
    program, run = tmp_path / "engine-gid.py", tmp_path / "run"
    program.write_text(render.source(gid_probe).replace('"/sys/class/infiniband"', repr(str(tmp_path / "sys"))))
    run.mkdir()
    argv = [sys.executable, "-I", str(program), "--variable", "X", "--variable", "Y", "--", str(run)]
    environ = {"GB10_RING_ENGINE_HASH": "00ff"}
    done = subprocess.run(
        [*argv, "a=10.100.0.1", "b=10.100.1.1"], capture_output=True, text=True, env=environ, check=False
    )
    assert (done.returncode, done.stderr) == (0, "engine-gid: a index 3, b index 3\n")
    assert (run / "gid.env").read_text() == "X=3\nY=3\n"
    assert (run / "hash").read_text() == "00ff"
    failed = subprocess.run([*argv, "a=10.100.0.9"], capture_output=True, text=True, env=environ, check=False)
    assert failed.returncode == 1
    assert "a has no RoCE v2 GID for 10.100.0.9" in failed.stderr


def test_without_variables_different_indexes_are_no_matter(tmp_path):
    table(tmp_path, "a", usual("10.100.0.1"))
    table(tmp_path, "b", [(EMPTY, None), *usual("10.100.1.1")])
    assert gid_probe.main(["--", str(tmp_path), "a=10.100.0.1", "b=10.100.1.1"], str(tmp_path)) == 0
    assert (tmp_path / "gid.env").read_text() == ""
    assert gid_probe.main(["--variable", "X", "--", str(tmp_path), "a=10.100.0.1", "b=10.100.1.1"], str(tmp_path)) == 1


def test_it_waits_for_a_link_that_comes_up_late(tmp_path, capsys):
    later = threading.Timer(0.3, table, (tmp_path, "a", usual("10.100.0.1")))
    later.start()
    assert gid_probe.main(["--wait", "10", "--", str(tmp_path), "a=10.100.0.1"], str(tmp_path)) == 0
    later.join()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].endswith("(playbooks/verify.yml); looked for again for 10 s")
    assert gid_probe.main(["--wait", "0.1", "--", str(tmp_path), "a=10.100.0.9"], str(tmp_path)) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.endswith("; looked for again for 0.1 s") for line in said] == [True, False]


@pytest.mark.parametrize(
    ("intent", "found"),
    [
        (None, 0),  # a boot's: the node at the other end of the cable comes up later
        ('{"want": "stopped"}', 0),
        ("no JSON", 0),
        ("[]", 0),
        ('{"want": "started"}', 1),
    ],
)
def test_a_boot_waits_longer_than_an_order(tmp_path, intent, found):
    run = tmp_path / "gb10-ring-engine"
    run.mkdir()
    if intent is not None:
        (tmp_path / "gb10-ring-group").mkdir()
        (tmp_path / "gb10-ring-group/intent.json").write_text(intent)
    later = threading.Timer(1.2, table, (tmp_path, "a", usual("10.100.0.1")))
    later.start()
    waits = ["--wait", "0.1", "--boot-wait", "10"]
    assert gid_probe.main([*waits, "--", str(run), "a=10.100.0.1"], str(tmp_path)) == found
    later.join()
