# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import tarfile
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.lab import cabling, image, layer, nodes
from ansible_collections.gb10.ring.lab.cabling import State
from ansible_collections.gb10.ring.lab.instance import Instance, LabError

WRAPPER = layer.FILES / "docker/usr/local/sbin/gb10-lab-runc"


def test_only_layers_that_there_are_can_be_asked_for() -> None:
    assert layer.check("") == "" and layer.check("docker") == "docker"
    with pytest.raises(LabError, match="layer 'kubernetes': one of docker is expected"):
        layer.check("kubernetes")


def test_a_changed_file_makes_another_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "FILES", tmp_path)
    before = layer.recipe("docker")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/file").write_text("x", encoding="ascii")
    assert layer.recipe("docker") != before


def test_the_layer_is_part_of_the_state() -> None:
    state = cabling.plan("ring", 3, 64, "docker")
    assert State.from_json(state.to_json()) == state
    old = json.loads(state.to_json())
    del old["layer"]
    assert State.from_json(json.dumps(old)).layer == ""


def test_only_nodes_of_a_layer_have_its_rights_and_its_disk(tmp_path: Path) -> None:
    instance = Instance("a", tmp_path)
    plain = nodes.nspawn_argv(instance, "spark1")
    assert "--capability=CAP_NET_ADMIN,CAP_NET_RAW,CAP_SYS_ADMIN" in plain and not any(
        "docker" in word for word in plain
    )
    (instance.node("spark1") / "images").mkdir(parents=True)
    (tmp_path / ".lab/layers/docker-0123").mkdir(parents=True)
    instance.layer.symlink_to(tmp_path / ".lab/layers/docker-0123")
    words = nodes.nspawn_argv(instance, "spark1")
    assert "--capability=all" in words and not any("CAP_SYS_ADMIN" in word for word in words)
    assert f"--bind={instance.node('spark1')}/images/docker:/var/lib/docker" in words


def test_an_image_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    tars = []
    for number in (1, 2):
        rootfs = tmp_path / f"root{number}"
        (rootfs / "usr/bin").mkdir(parents=True)
        (rootfs / "usr/lib/python3.13/__pycache__").mkdir(parents=True)
        (rootfs / "usr/lib/python3.13/os.py").write_text("x", encoding="ascii")
        (rootfs / "usr/lib/python3.13/__pycache__/os.pyc").write_text(str(number), encoding="ascii")
        (rootfs / "usr/bin/python3").symlink_to("python3.13")
        (rootfs / "bin").symlink_to("usr/bin")
        tars.append(tmp_path / f"{number}.tar")
        image.write(rootfs, tars[-1])
    assert tars[0].read_bytes() == tars[1].read_bytes()
    with tarfile.open(tars[0]) as made:
        names = made.getnames()
    assert {"usr", "usr/lib/python3.13/os.py", "bin", image.ENGINE[1:], "opt/gb10-lab/checkpoint/engram.py"} <= set(
        names
    )
    assert not any("__pycache__" in name for name in names)


@pytest.fixture(scope="module")
def wrapper():  # type: ignore[no-untyped-def]
    loader = importlib.machinery.SourceFileLoader("gb10_lab_runc", str(WRAPPER))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["--root", "/r", "create", "--bundle", "/b", "--pid-file", "p", "id"], Path("/b")),
        (["--systemd-cgroup", "create", "--bundle=/b", "id"], Path("/b")),
        (["run", "-b", "/b", "id"], Path("/b")),
        (["create", "id"], Path()),
        (["--root", "/r", "start", "id"], None),
        (["delete", "--force", "id"], None),
    ],
)
def test_the_runtime_stand_in_finds_the_container(wrapper, words, folder) -> None:  # type: ignore[no-untyped-def]
    assert wrapper.bundle(words) == folder


def test_the_runtime_stand_in_takes_out_what_the_lab_cannot_do_and_nothing_else(wrapper) -> None:  # type: ignore[no-untyped-def]
    own = int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii"))
    asked = {
        "process": {"args": ["x"], "rlimits": [{"type": "RLIMIT_MEMLOCK"}], "oomScoreAdj": -1000},
        "linux": {
            "resources": {"memory": {"limit": 1}, "cpu": {"quota": 1}, "devices": [{"allow": False}]},
            "namespaces": [],
        },
        "root": {"path": "r"},
    }
    left = wrapper.fitted(asked)
    assert left["process"] == {"args": ["x"], "rlimits": [], "oomScoreAdj": own}
    assert left["linux"] == {"resources": {"devices": [{"allow": False}]}, "namespaces": []}
    assert left["root"] == {"path": "r"} and asked["process"]["rlimits"]
