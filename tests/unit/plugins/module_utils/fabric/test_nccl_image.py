# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL inside an image: what ``image inspect`` of Docker 20.10.24 and Podman 4.3.1 says, layers as overlayfs stacks them, a tar stream.

The fixtures were recorded from an image of four layers; of what was printed they hold the parts that are looked at.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import nccl_image
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError

FIXTURES = Path(__file__).parents[3] / "fixtures/nccl_image"
OLD = b"\x7fELF\0NCCL version 2.27.7+cuda13.0\0"
NEW = b"\x7fELF\0NCCL version 2.30.7+cuda13.2\0NCCL_IB_SUBNET_AWARE_ROUTING\0"
WHEEL = "usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2"
DEBIAN = "usr/lib/aarch64-linux-gnu/libnccl.so.2.27.7"
CONTAINERD = json.dumps([{"Id": "sha256:26cb", "RepoTags": ["engine:1"]}])


@pytest.mark.parametrize(
    ("runtime", "identity", "first"),
    [
        ("docker", "sha256:26cbe394", "/var/lib/docker/overlay2/26517f06"),
        ("podman", "26cbe394", "/var/lib/containers/storage/overlay/ae1bcd92"),
    ],
)
def test_layers_are_known_from_what_the_runtime_prints(runtime: str, identity: str, first: str) -> None:
    image = nccl_image.described(runtime, (FIXTURES / f"{runtime}.json").read_text(encoding="utf-8"))
    assert image is not None
    assert image.id.startswith(identity)
    assert len(image.layers) == 4
    assert image.layers[0].startswith(first)
    assert all(layer.endswith("/diff") for layer in image.layers)


@pytest.mark.parametrize(
    "driver",
    [
        None,
        {"Name": "vfs", "Data": None},
        {"Name": "btrfs", "Data": {}},
        {"Name": "overlay2", "Data": {}},
        {"Name": "zfs", "Data": {"UpperDir": "/x"}},
    ],
)
def test_other_stores_have_no_layers(driver: object) -> None:
    image = nccl_image.described("docker", json.dumps([{"Id": "sha256:1", "GraphDriver": driver}]))
    assert image == nccl_image.Image("docker", "sha256:1")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '["x"]'])
def test_what_is_no_image(text: str) -> None:
    assert nccl_image.described("docker", text) is None


def layer(root: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    root.mkdir(exist_ok=True)
    return str(root)


def seen(layers: list[str]) -> list[str]:
    return [library.text().partition(":/")[2] for library in nccl_image.of_layers("engine:1", layers)]


def test_each_library_of_every_layer_is_found_once(tmp_path: Path) -> None:
    low = layer(tmp_path / "low", {DEBIAN: OLD, "etc/libnccl.txt": OLD})
    (tmp_path / "low" / DEBIAN).with_name("libnccl.so.2").symlink_to("libnccl.so.2.27.7")
    assert seen([layer(tmp_path / "up", {WHEEL: NEW}), low]) == [
        f"{WHEEL} 2.30.7 with subnet-aware routing",
        f"{DEBIAN} 2.27.7 without subnet-aware routing",
    ]


def test_a_layer_above_replaces_a_library(tmp_path: Path) -> None:
    assert seen([layer(tmp_path / "up", {WHEEL: NEW}), layer(tmp_path / "low", {WHEEL: OLD})]) == [
        f"{WHEEL} 2.30.7 with subnet-aware routing"
    ]


@pytest.mark.parametrize("where", [DEBIAN, str(Path(DEBIAN).parent), "usr"], ids=["itself", "its directory", "the top"])
def test_what_a_layer_above_removed_is_not_there(tmp_path: Path, where: str) -> None:
    """A whiteout is a character device, which only root can make: anything that is no directory stands for it here, such as a link."""
    (tmp_path / "up" / where).parent.mkdir(parents=True)
    (tmp_path / "up" / where).symlink_to("nowhere")
    assert seen([str(tmp_path / "up"), layer(tmp_path / "low", {DEBIAN: OLD})]) == []


def test_a_link_above_covers_a_directory_and_is_not_followed(tmp_path: Path) -> None:
    low = layer(tmp_path / "low", {"opt/venv/libnccl.so.2": OLD})
    elsewhere = layer(tmp_path / "elsewhere", {"libnccl.so.2": NEW})
    up = layer(tmp_path / "up", {"opt/x": b""})
    (tmp_path / "up/opt/venv").symlink_to(elsewhere)
    assert seen([up, low]) == []


def test_a_directory_that_starts_afresh_covers_what_is_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def getxattr(path: Path, name: str) -> bytes:
        if name == "trusted.overlay.opaque" and str(path).endswith("up/opt/venv"):
            return b"y"
        raise OSError(61, "No data available")

    monkeypatch.setattr(os, "getxattr", getxattr)
    low = layer(tmp_path / "low", {"opt/venv/libnccl.so.2": OLD, "opt/other/libnccl.so.2": OLD})
    assert seen([layer(tmp_path / "up", {"opt/venv/x": b""}), low]) == [
        "opt/other/libnccl.so.2 2.27.7 without subnet-aware routing"
    ]


def archive(files: dict[str, bytes]) -> bytes:
    """A file system as ``export`` prints it: names without a leading slash, links beside files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as written:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
            link = tarfile.TarInfo(f"{name}.link")
            link.type, link.linkname = tarfile.SYMTYPE, Path(name).name
            written.addfile(link)
    return held.getvalue()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker on PATH that has one image, in a store without overlay directories, and writes down how it was called."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker"
    program.write_text(
        f"""#!/bin/sh
echo "$*" >>{tmp_path}/calls
case "$*" in
"image inspect -- engine:1") echo '{CONTAINERD}';;
create*) echo a warning >&2; echo c0ffee;;
"export c0ffee") cat {tmp_path}/tar; exit $(cat {tmp_path}/status);;
"rm --volumes c0ffee") ;;
*) echo "[]"; exit 1;;
esac
""",
        encoding="utf-8",
    )
    program.chmod(0o755)
    (tmp_path / "tar").write_bytes(archive({WHEEL: b"x" * (5 << 20) + NEW, DEBIAN: OLD, "etc/passwd": NEW}))
    (tmp_path / "status").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


CALLS = [
    "image inspect -- engine:1",
    "create --network none --entrypoint /gb10-ring-never-started sha256:26cb",
    "export c0ffee",
    "rm --volumes c0ffee",
]


@pytest.mark.parametrize("wanted", ["auto", "docker"])
def test_without_layers_a_container_is_read_and_removed(runtime: Path, wanted: str) -> None:
    found = nccl_image.libraries("engine:1", wanted)
    assert [library.text() for library in found] == [
        f"engine:1:/{WHEEL} 2.30.7 with subnet-aware routing",
        f"engine:1:/{DEBIAN} 2.27.7 without subnet-aware routing",
    ]
    assert (runtime / "calls").read_text().splitlines() == CALLS


@pytest.mark.parametrize(
    ("tar", "status", "said"),
    [(b"", "1", "export c0ffee: "), (archive({WHEEL: NEW}), "1", "exit 1"), (b"x" * 600, "0", "no whole tar")],
)
def test_a_broken_export_is_told_and_its_container_removed(runtime: Path, tar: bytes, status: str, said: str) -> None:
    (runtime / "tar").write_bytes(tar)
    (runtime / "status").write_text(status)
    with pytest.raises(HostError, match=said):
        nccl_image.libraries("engine:1", "docker")
    assert (runtime / "calls").read_text().splitlines() == CALLS


def test_an_image_that_is_not_there_has_no_libraries(runtime: Path) -> None:
    assert nccl_image.libraries("other:1", "docker") == []
    assert (runtime / "calls").read_text().splitlines() == ["image inspect -- other:1"]


def test_podman_is_asked_when_docker_does_not_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = layer(tmp_path / "diff", {WHEEL: NEW})
    inspected = [{"Id": "26cb", "GraphDriver": {"Name": "overlay", "Data": {"UpperDir": low}}}]
    calls = []

    def ask(argv: list[str], check: bool = True) -> Completed:
        calls.append(argv[0])
        return Completed(
            tuple(argv), int(argv[0] == "docker"), "[]" if argv[0] == "docker" else json.dumps(inspected), ""
        )

    monkeypatch.setattr(nccl_image.shutil, "which", lambda name: f"/usr/bin/{name}")
    (found,) = nccl_image.libraries("engine:1", "auto", ask)
    assert found.version == (2, 30, 7) and found.subnet_aware
    assert calls == ["docker", "podman"]


def test_no_runtime_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_image.shutil, "which", lambda name: None)
    with pytest.raises(HostError, match="neither docker nor podman is installed"):
        nccl_image.libraries("engine:1", "auto")


@pytest.mark.parametrize(
    "record", [None, "", "{}", "[]", '{"container": null}', '{"container": {"reference": "y", "image": "z"}}']
)
def test_a_record_of_another_image_does_not_count(record: str | None) -> None:
    assert nccl_image.run_as("x", record) == "x"


def test_whether_an_image_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(argv: list[str], **_options: object) -> Completed:
        return Completed(tuple(argv), 0 if argv[-1] == "engine:1" else 1, CONTAINERD, "")

    assert nccl_image.is_there("engine:1", "docker", ask)
    assert not nccl_image.is_there("engine:2", "docker", ask)
    monkeypatch.setattr(nccl_image.shutil, "which", lambda name: None)
    assert not nccl_image.is_there("engine:1", "auto", ask)
