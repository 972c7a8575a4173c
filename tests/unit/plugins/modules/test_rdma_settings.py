from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.fabric import rdma_machine
from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import RdmaPlan
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed
from ansible_collections.gb10.ring.plugins.modules import rdma_settings


@pytest.fixture
def modprobe(monkeypatch):
    """A machine that can raise limits and knows every module except ``absent``."""
    ran = []

    def run(argv, check=True):
        ran.append(list(argv))
        return Completed(tuple(argv), int(argv[-1] == "absent"), "", "modprobe: FATAL: Module absent not found.")

    monkeypatch.setattr(rdma_machine, "run", run)
    monkeypatch.setattr(rdma_machine, "memlock_allowed", lambda memlock: True)
    return ran


def call(tree, capsys, check=False, **options):
    arguments = {
        "modules": ["mlx5_core", "rdma_ucm"],
        **{f"{name}_root": str(tree / name) for name in ("etc", "sys", "modules")},
        "record_path": str(tree / "gb10-ring/record.json"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        rdma_settings.main()
    return json.loads(capsys.readouterr().out)


def written(tree):
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())


def directories(tree):
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_dir() and "sys" not in path.parts)


def test_check_mode_then_apply_then_nothing(tmp_path, capsys, modprobe):
    (tmp_path / "sys/module/mlx5_core").mkdir(parents=True)
    predicted = call(tmp_path, capsys, check=True)
    assert (predicted["changed"], predicted["loaded"], written(tmp_path)) == (True, ["rdma_ucm"], [])
    assert modprobe == [["modprobe", "--dry-run", "rdma_ucm"]]
    result = call(tmp_path, capsys)
    assert result["diff"] == predicted["diff"]
    assert ["modprobe", "rdma_ucm"] in modprobe
    assert written(tmp_path) == [
        "etc/modules-load.d/90-gb10-ring.conf",
        "etc/security/limits.d/90-gb10-ring.conf",
        "etc/systemd/system.conf.d/90-gb10-ring.conf",
        "gb10-ring/directories-before.json",
        "gb10-ring/record.json",
    ]
    (tmp_path / "sys/module/rdma_ucm").mkdir()
    again = call(tmp_path, capsys)
    assert (again["changed"], again["files"], again["loaded"]) == (False, [], [])


def test_another_value_changes_only_its_file(tmp_path, capsys, modprobe):
    call(tmp_path, capsys, load_modules=False)
    result = call(tmp_path, capsys, load_modules=False, memlock="8192")
    assert [path.removeprefix(str(tmp_path)) for path in result["files"]] == [
        "/etc/security/limits.d/90-gb10-ring.conf"
    ]
    assert modprobe == []


@pytest.mark.parametrize("check", [False, True])
def test_everything_wrong_is_told_and_nothing_changes(tmp_path, capsys, modprobe, monkeypatch, check):
    monkeypatch.setattr(rdma_machine, "memlock_allowed", lambda memlock: False)
    monkeypatch.setattr(rdma_machine, "hard_memlock", lambda: "8192 KiB")
    result = call(tmp_path, capsys, check=check, modules=["absent"])
    assert result["failed"] is True
    assert "root may not raise it" in result["msg"]
    assert "kernel module absent does not exist" in result["msg"]
    assert written(tmp_path) == []


def test_bad_options(tmp_path, capsys, modprobe):
    result = call(tmp_path, capsys, memlock="8M", default_memlock="unlimited", modules=["a b"])
    assert result["msg"].count(";") >= 2
    assert all(name in result["msg"] for name in ("modules: 'a b'", "memlock: '8M'", "default_memlock: 'unlimited'"))


def test_a_module_that_gb10_does_not_support_is_refused(tmp_path, capsys, modprobe):
    result = call(tmp_path, capsys, modules=["mlx5_ib", "nvidia-peermem"])
    assert "nvidia-peermem is not supported on GB10" in result["msg"]
    assert written(tmp_path) == []


@pytest.fixture
def used(tmp_path, capsys, modprobe):
    """A node on which the module has run: its old limits file is recorded, and rdma_ucm is loaded by us."""
    (tmp_path / "etc/security/limits.d").mkdir(parents=True)
    (tmp_path / "etc/security/limits.d/90-gb10-ring.conf").write_text("* hard core 0\n")
    (tmp_path / "sys/module/mlx5_core").mkdir(parents=True)
    call(tmp_path, capsys)
    call(tmp_path, capsys, memlock="8192", load_modules=False)
    (tmp_path / "sys/module/rdma_ucm").mkdir()
    modprobe.clear()
    return tmp_path


def test_all_of_it_comes_back_byte_for_byte(used, capsys, modprobe):
    predicted = call(used, capsys, check=True, state="absent")
    assert modprobe == []
    result = call(used, capsys, state="absent")
    assert (result["diff"], result["unloaded"], result["notes"]) == (predicted["diff"], ["rdma_ucm"], [])
    assert modprobe == [["modprobe", "-r", "rdma_ucm"]]
    assert written(used) == ["etc/security/limits.d/90-gb10-ring.conf"]
    assert (used / "etc/security/limits.d/90-gb10-ring.conf").read_text() == "* hard core 0\n"
    assert directories(used) == ["etc", "etc/security", "etc/security/limits.d"]
    (used / "sys/module/rdma_ucm").rmdir()
    assert call(used, capsys, state="absent")["changed"] is False


def test_a_module_in_use_stays_and_is_named(used, capsys, monkeypatch):
    said = Completed(("modprobe", "-r", "rdma_ucm"), 1, "", "modprobe: FATAL: Module rdma_ucm is in use.")
    monkeypatch.setattr(rdma_machine, "run", lambda argv, check=True: said)
    (note,) = call(used, capsys, state="absent")["notes"]
    assert "rdma_ucm stays loaded until the next boot" in note
    assert "in use" in note


def test_a_module_that_another_of_them_used_goes_with_it(tmp_path, capsys, monkeypatch):
    """mlx5_ib is loaded before ib_uverbs and uses it."""
    loaded = ["mlx5_ib", "ib_uverbs"]

    def run(argv, timeout=60.0, check=True):
        held = argv[1:] == ["-r", "ib_uverbs"] and "mlx5_ib" in loaded
        if argv[1:] == ["-r", "mlx5_ib"]:
            loaded.clear()
        return Completed(tuple(argv), int(held), "", "modprobe: FATAL: Module ib_uverbs is in use." if held else "")

    monkeypatch.setattr(rdma_machine, "run", run)
    planned = RdmaPlan(unload=("ib_uverbs", "mlx5_ib"))
    assert rdma_machine.take_back(planned, tmp_path / "record.json") == []
    assert loaded == []
