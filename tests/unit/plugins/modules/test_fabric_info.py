# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module fabric_info from options to result."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import LIMITS_FILE, Wanted, files
from ansible_collections.gb10.ring.plugins.modules import fabric_info
from ansible_collections.gb10.ring.tests.unit.fixtures import sysfs
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS


def opened(root, folder):
    """The verbs class and device files of the tree's devices, as udev leaves them."""
    for number, device in enumerate(sorted((root / "class/infiniband").glob("*"))):
        sysfs.write(root / f"class/infiniband_verbs/uverbs{number}/ibdev", device.name)
        sysfs.write(folder / f"uverbs{number}", "")
    sysfs.write(folder / "rdma_cm", "")
    for path in folder.iterdir():
        path.chmod(0o666)


@pytest.fixture
def on_machine(tmp_path, monkeypatch, capsys):
    """A function that runs the module on one of the trees; /dev and /etc are those of a healthy node."""
    commands = Commands(tmp_path / "bin", monkeypatch)
    sysfs.write(tmp_path / "etc" / LIMITS_FILE, files(Wanted((), "unlimited", ""))[LIMITS_FILE])

    def run(tree, **options):
        root = tmp_path / tree
        commands.links(*sysfs.machine(root, tree))
        opened(root, tmp_path / "dev/infiniband")
        roots = {"sysfs_root": str(root), "dev_root": str(tmp_path / "dev"), "etc_root": str(tmp_path / "etc")}
        with patch_module_args({**roots, **options}), pytest.raises(SystemExit):
            fabric_info.main()
        return json.loads(capsys.readouterr().out)

    return run


def ids(result, ok=None):
    return [check["id"] for check in result["checks"] if ok is None or check["ok"] is ok]


def test_facts_without_a_plan(on_machine):
    result = on_machine("dgx-spark")
    assert [port["netdev"] for port in result["ports"]] == [port["netdev"] for port in PORTS]
    assert [port["gid_index"] for port in result["ports"]] == [3, 3, 3, 3]
    assert set(result["ports"][0]) == set(fabric_info.info.Function.__dataclass_fields__)
    assert (result["sys_image_guid"], result["firmware"]) == (sysfs.SYS_IMAGE_GUID, [sysfs.FIRMWARE])
    assert (result["hotplug"], result["changed"], result["checks"]) == (True, False, [])


def test_checks_of_a_healthy_node(on_machine):
    result = on_machine("dgx-spark", node="spark1", ports=PORTS)
    assert ids(result) == [*["rdma.device", "rdma.state", "rdma.rate"] * 4, "rdma.memlock", "rdma.device_files"]
    assert ids(result, ok=False) == []


@pytest.mark.parametrize(
    ("tree", "present", "bad"),
    [
        ("one-cable-out", 4, ["rdma.state"] * 2),
        ("hotplug-off", 0, ["rdma.device"] * 4),
        ("renamed", 4, ["rdma.device"] * 4),
        ("bonded", 4, []),
        ("vm", 1, ["rdma.device"] * 4),
    ],
)
def test_nothing_that_is_missing_is_an_error(on_machine, tree, present, bad):
    result = on_machine(tree, node="spark1", ports=PORTS)
    assert "failed" not in result
    assert sum(port["present"] for port in result["ports"]) == present
    assert ids(result, ok=False) == bad


def test_the_memlock_check_can_be_left_out(on_machine):
    assert "rdma.memlock" not in ids(on_machine("dgx-spark", node="spark1", ports=PORTS, memlock=""))


@pytest.mark.parametrize(("rate", "bad"), [(100, ["rdma.rate"] * 4), (0, [])])
def test_another_rate_can_be_expected(on_machine, rate, bad):
    assert ids(on_machine("dgx-spark", node="spark1", ports=PORTS, expected_rate=rate), ok=False) == bad


def test_ports_that_cannot_be_used(on_machine):
    assert on_machine("dgx-spark", ports=[{"port": 0}])["msg"].startswith("ports[0]: rail, netdev")


def test_runs_in_check_mode(on_machine):
    assert len(on_machine("dgx-spark", _ansible_check_mode=True)["ports"]) == 4


def test_device_files_that_only_root_may_open(on_machine, tmp_path, monkeypatch):
    on_machine("dgx-spark")
    monkeypatch.setitem(globals(), "opened", lambda root, folder: None)
    (tmp_path / "dev/infiniband/uverbs1").chmod(0o600)
    (tmp_path / "dev/infiniband/rdma_cm").unlink()
    (check,) = [check for check in on_machine("dgx-spark", node="spark1", ports=PORTS)["checks"] if not check["ok"]]
    assert check["id"] == "rdma.device_files"
    assert "uverbs1 (roceP2p1s0f1) has mode 0600" in check["found"]
    assert "rdma_cm absent" in check["found"]


@pytest.mark.parametrize(
    "case",
    [
        (
            b"\x7fELF..NCCL version 2.30.7+cuda13.0\0..NCCL_IB_SUBNET_AWARE_ROUTING\0",
            True,
            True,
            "2.30.7 with subnet-aware",
        ),
        (b"\x7fELF..NCCL version 2.29.3+cuda13.0\0", True, False, "2.29.3 without subnet-aware"),
        (b"\x7fELF..NCCL version 2.29.3+cuda13.0\0", False, True, "2.29.3 without subnet-aware"),
        (b"\x7fELF", True, False, "of unknown version without"),
        (None, True, False, "no libnccl.so below"),
    ],
)
def test_the_nccl_that_will_serve(on_machine, tmp_path, case):
    content, aware, ok, found = case
    venv = tmp_path / "venv/lib/python3.12/site-packages/nvidia/nccl/lib"
    venv.mkdir(parents=True)
    if content is not None:
        (venv / "libnccl.so.2").write_bytes(content)
        (venv / "libnccl.so").symlink_to("libnccl.so.2")
    options = {"nccl_path": str(tmp_path / "venv"), "nccl_subnet_aware": aware}
    result = on_machine("dgx-spark", node="spark1", ports=PORTS, **options)
    (check,) = [check for check in result["checks"] if check["id"] == "rdma.nccl_library"]
    assert check["ok"] is ok
    assert found in check["found"]
    assert check["found"].count("libnccl") == 1


def test_an_empty_library_is_none_that_knows_rings(on_machine, tmp_path):
    (tmp_path / "libnccl.so.2").write_bytes(b"")
    result = on_machine("dgx-spark", node="spark1", ports=PORTS, nccl_path=str(tmp_path / "libnccl.so.2"))
    (check,) = [check for check in result["checks"] if check["id"] == "rdma.nccl_library"]
    assert not check["ok"]
    assert check["found"].endswith("libnccl.so.2 of unknown version without subnet-aware routing")


def test_the_nccl_of_an_image(on_machine, monkeypatch):
    asked = []

    def libraries(reference, runtime):
        asked.append((reference, runtime))
        return []

    monkeypatch.setattr(fabric_info.nccl_image, "libraries", libraries)
    options = {"nccl_image": "engine@sha256:1f", "nccl_runtime": "podman"}
    result = on_machine("dgx-spark", node="spark1", ports=PORTS, **options)
    (check,) = [check for check in result["checks"] if check["id"] == "rdma.nccl_library"]
    assert (check["ok"], check["found"]) == (False, "no libnccl.so in image engine@sha256:1f")
    assert "rdma_nccl_image" in check["cure"]
    assert asked == [("engine@sha256:1f", "podman")]


def test_an_image_that_cannot_be_looked_at_leaves_the_other_checks(on_machine, monkeypatch):
    monkeypatch.setattr(fabric_info.nccl_image.shutil, "which", lambda name: None)
    result = on_machine("dgx-spark", node="spark1", ports=PORTS, nccl_image="engine:1")
    (check,) = [check for check in result["checks"] if check["id"] == "rdma.nccl_library"]
    assert not check["ok"]
    assert "neither docker nor podman is installed" in check["found"]
    assert len(result["checks"]) > 1


@pytest.mark.parametrize("missing", ["nccl_path", "nccl_image"])
def test_what_the_profile_names_may_come_later(on_machine, monkeypatch, tmp_path, missing):
    """It is an error where a person has named it, and a warning where the engine's profile has."""
    monkeypatch.setattr(fabric_info.nccl_image, "is_there", lambda reference, runtime: False)
    monkeypatch.setattr(fabric_info.nccl_image, "libraries", lambda reference, runtime: [])
    for required, severity in ((True, "error"), (False, "warning")):
        options = {missing: str(tmp_path / "later"), "nccl_required": required}
        result = on_machine("dgx-spark", node="spark1", ports=PORTS, **options)
        (check,) = [check for check in result["checks"] if check["id"] == "rdma.nccl_library"]
        assert (check["ok"], check["severity"]) == (False, severity)
    assert check["found"].endswith(f"{tmp_path}/later is not on the node yet")
    assert "verify.yml, which looks at it once it is there" in check["cure"]


def test_the_engines_image_is_found_by_the_id_that_its_unit_runs(on_machine, monkeypatch, tmp_path):
    """A digest of a registry is known only to the node that pulled it."""
    asked = []
    monkeypatch.setattr(fabric_info.nccl_image, "is_there", lambda reference, runtime: asked.append(reference) or True)
    monkeypatch.setattr(fabric_info.nccl_image, "libraries", lambda reference, runtime: asked.append(reference) or [])
    sysfs.write(
        tmp_path / "etc/gb10-ring/engine.json", '{"container": {"reference": "x@sha256:aa", "image": "sha256:bb"}}'
    )
    for image in ("x@sha256:aa", "x@sha256:cc"):
        on_machine("dgx-spark", node="spark1", ports=PORTS, nccl_image=image, nccl_required=False)
    assert asked == ["sha256:bb", "sha256:bb", "x@sha256:cc", "x@sha256:cc"]


def test_versions_of_packages_are_told(on_machine, monkeypatch):
    monkeypatch.setattr(fabric_info, "packages", lambda names: {"rdma-core": "50.0-2build2"})
    options = {"node": "spark1", "ports": PORTS}
    found = [
        next(
            check
            for check in on_machine("dgx-spark", packages=names, **options)["checks"]
            if check["id"] == "rdma.packages"
        )
        for names in (["rdma-core"], ["rdma-core", "perftest"])
    ]
    assert [(check["ok"], check["found"]) for check in found] == [
        (True, "rdma-core 50.0-2build2"),
        (False, "not installed: perftest"),
    ]
