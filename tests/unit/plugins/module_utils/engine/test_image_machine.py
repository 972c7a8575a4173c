# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing images, with a stand-in for docker and podman and the server that gives them over loopback."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import transient
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.peer_server import serving
from ansible_collections.gb10.ring.plugins.module_utils.engine import image_machine, image_server, image_unit
from ansible_collections.gb10.ring.plugins.module_utils.engine.image_machine import Route
from ansible_collections.gb10.ring.plugins.module_utils.engine.image_server import Giver, Handler
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures import docker_stand_in

TOKEN = "a-token"
CONTENT = bytes(range(256)) * 20_000 + b"END"
ABSENT = f"sha256:{'0' * 64}"


@pytest.fixture(params=["docker", "podman"])
def runtime(request, tmp_path, monkeypatch):
    """Name of the runtime whose place the stand-in takes."""
    program = docker_stand_in.make(tmp_path / "mine", "sha256:" if request.param == "docker" else "")
    monkeypatch.setitem(image_machine.RUNTIMES, request.param, str(program))
    return request.param


def mine(tmp_path):
    return tmp_path / "mine/docker"


@pytest.fixture
def giver(tmp_path):
    """A neighbour that has the image: its stand-in, the image's id, and the port of its server."""
    program = docker_stand_in.make(tmp_path / "theirs")
    image_id = docker_stand_in.put(program, CONTENT)
    name = image_machine.name_in_address(image_id)
    room = Giver(name, [str(program), "image", "save", image_id], token=TOKEN)
    with serving(room, [{"address": "127.0.0.1", "netdev": ""}], 0, Handler) as (server,):
        yield program, image_id, server.server_address[1]


def take(runtime, giver, addresses=("127.0.0.1",), token=TOKEN, image_id=""):
    _program, given, port = giver
    return image_machine.take(runtime, image_id or given, Route(addresses, port, token, 5.0), 20.0)


def test_what_is_there_is_told_by_full_ids(runtime, tmp_path):
    assert image_machine.images(runtime) == {}
    first = docker_stand_in.put(mine(tmp_path), b"one END", "name@sha256:1")
    second = docker_stand_in.put(mine(tmp_path), b"other END")
    assert image_machine.images(runtime) == {first: 7, second: 9}
    assert image_machine.id_of(runtime, "name@sha256:1") == first
    assert image_machine.id_of(runtime, "nobody") == "" == image_machine.id_of(runtime, "")


def test_a_neighbour_gives_it_and_the_first_that_does_not_answer_is_passed(runtime, giver, tmp_path):
    assert take(runtime, giver, ("127.0.0.2", "127.0.0.1")) == "127.0.0.1"
    assert image_machine.images(runtime) == {giver[1]: len(CONTENT)}
    environment = json.loads((tmp_path / "mine/store/load-environment").read_text())
    assert (runtime == "podman") == ("gb10-ring-image-" in environment.get("TMPDIR", ""))
    assert list((tmp_path / "mine/store").glob("gb10-ring-image-*")) == []


def fail(giver):
    (giver[0].parent / "store/save-fails").touch()


def shorten(giver):
    path = next((giver[0].parent / "store").glob("*.image"))
    path.write_bytes(CONTENT[:2_000_000])


def change(giver):
    path = next((giver[0].parent / "store").glob("*.image"))
    path.write_bytes(b"x" + CONTENT[1:])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (fail, "the stream ended before the image did"),
        (shorten, "unexpected EOF"),
        (change, "it came whole and is another image"),
    ],
)
def test_a_transfer_that_goes_wrong_leaves_nothing_that_counts(runtime, giver, tmp_path, spoil, said):
    spoil(giver)
    with pytest.raises(HostError, match=rf"no neighbour gave sha256:\w{{12}}: 127\.0\.0\.1: .*{said}"):
        take(runtime, giver)
    assert giver[1] not in image_machine.images(runtime)
    assert list((tmp_path / "mine/store").glob("gb10-ring-image-*")) == []


@pytest.mark.parametrize(("more", "said"), [({"token": "guess"}, "403"), ({"image_id": ABSENT}, "404")])
def test_nothing_without_the_token_and_no_other_image(runtime, giver, more, said):
    with pytest.raises(HostError, match=f"it answers {said}"):
        take(runtime, giver, **more)


def test_a_runtime_that_ends_early_is_named_with_its_last_words(runtime, giver, tmp_path):
    mine(tmp_path).write_text("#!/bin/sh\n[ $1 = load ] && echo no space left on device && exit 1\necho /tmp\n")
    with pytest.raises(HostError, match="load --quiet: exit 1: no space left on device"):
        take(runtime, giver)


def options(runtime, **more):
    given = {
        "runtime": runtime,
        "image": "",
        "image_id": "",
        "archive": "",
        "timeout_s": 20,
        "step": "keep",
        "token": TOKEN,
    }
    return {**given, "stall_timeout_s": 5, **more}


def test_a_pull_brings_what_the_reference_stands_for(runtime, tmp_path):
    (tmp_path / "mine/store/registry").write_bytes(CONTENT)
    found = image_machine.bring(options(runtime, step="pull", image="name@sha256:1"))
    assert found["reference_id"] in found["images"] and found["disk"]["size"] > found["disk"]["available"]


def test_a_pull_of_another_image_than_the_profiles_is_an_error(runtime, tmp_path):
    (tmp_path / "mine/store/registry").write_bytes(CONTENT)
    with pytest.raises(HostError, match=f"name:tag is here now and is sha256:.*, expected {ABSENT}"):
        image_machine.bring(options(runtime, step="pull", image="name:tag", image_id=ABSENT))


def archive(path, members):
    with tarfile.open(path, "w") as made:
        for name, value in members.items():
            text = json.dumps(value).encode() if not isinstance(value, bytes) else value
            member = tarfile.TarInfo(name)
            member.size = len(text)
            made.addfile(member, io.BytesIO(text))


HEX, MANIFEST = "1" * 64, f"sha256:{'2' * 64}"


@pytest.mark.parametrize(
    ("members", "ids"),
    [
        ({"manifest.json": [{"Config": f"{HEX}.json"}]}, [f"sha256:{HEX}"]),
        (
            {"manifest.json": [{"Config": f"blobs/sha256/{HEX}"}], "index.json": {"manifests": [{"digest": MANIFEST}]}},
            [f"sha256:{HEX}", MANIFEST],
        ),
    ],
)
def test_the_ids_in_an_archive_are_read_without_loading_it(tmp_path, members, ids):
    archive(tmp_path / "a.tar", {"blobs/sha256/x": b"layer", **members})
    assert image_machine.archive_ids(str(tmp_path / "a.tar")) == ids


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.write_bytes(b"no tar"), "a.tar: "),
        (lambda path: archive(path, {"etc/hosts": b"x"}), "manifest.json"),
        (lambda path: archive(path, {"manifest.json": {"Config": 1}}), "a.tar: "),
    ],
)
def test_an_archive_that_cannot_be_read_is_told_and_stops_no_look(runtime, tmp_path, make, said):
    make(tmp_path / "a.tar")
    found = image_machine.look(options(runtime, archive=str(tmp_path / "a.tar"), image_id=ABSENT))
    assert said in found["archive_problem"] and found["archive_ids"] == []


def test_an_archive_of_an_image_that_is_there_is_not_read(runtime, tmp_path):
    image_id = docker_stand_in.put(mine(tmp_path), CONTENT)
    found = image_machine.look(options(runtime, archive="/absent", image_id=image_id))
    assert (found["archive_problem"], found["archive_ids"]) == ("", [])


def test_an_archive_is_loaded(runtime, tmp_path):
    (tmp_path / "a.tar").write_bytes(CONTENT)
    theirs = docker_stand_in.put(docker_stand_in.make(tmp_path / "theirs"), CONTENT)
    found = image_machine.bring(options(runtime, step="load", archive=str(tmp_path / "a.tar"), image_id=theirs))
    assert theirs in found["images"]


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ('{"container": {"image": "sha256:1"}}', "sha256:1"),
        ('{"container": null}', ""),
        ("no json", ""),
        ("[]", ""),
        (None, ""),
    ],
)
def test_what_the_unit_runs(tmp_path, text, image):
    path = tmp_path / "engine.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert image_machine.unit_image(str(path)) == image


def test_a_stale_temporary_directory_goes_before_the_next_load(runtime, giver, tmp_path):
    stale = tmp_path / "mine/store/gb10-ring-image-stale"
    stale.mkdir()
    take(runtime, giver)
    assert stale.exists() == (runtime == "docker")  # which has none of its own


def test_the_server_ends_when_nobody_takes_anything():
    room = Giver("x", [], token=TOKEN)
    image_server.wait(room, threading.Event(), idle_s=0.0, pace_s=0.01)
    stop = threading.Event()
    stop.set()
    image_server.wait(Giver("x", [], token=TOKEN, running={object()}), stop, idle_s=0.0)


def test_the_servers_settings_and_unit(runtime):
    given = {"runtime": runtime, "image_id": ABSENT, "port": 7874, "token": TOKEN, "idle_s": 60}
    settings = image_unit.settings({**given, "listen": [{"address": "10.0.0.1", "netdev": "net0"}]})
    assert settings["command"][1:] == ["image", "save", ABSENT] and settings["name"] == "0" * 64
    argv = image_unit.program(runtime).argv("python3", 60)
    assert TOKEN not in argv and ("--property=ProtectSystem=strict" in argv) == (runtime == "docker")
    assert f"--unit={image_unit.UNIT}" in argv and argv[-1] == str(Path("/run/gb10-ring-image") / transient.SETTINGS)
