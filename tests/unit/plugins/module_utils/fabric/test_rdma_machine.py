from __future__ import annotations

import os
import resource

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import made
from ansible_collections.gb10.ring.plugins.module_utils.fabric import rdma_machine
from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import RdmaPlan, Wanted, decide, way_back
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError

WANTED = Wanted(("mlx5_core", "rdma_ucm"), "unlimited", "infinity")


def test_missing_modules(tmp_path):
    (tmp_path / "sys/module/mlx5_core").mkdir(parents=True)
    builtin = tmp_path / "modules" / os.uname().release / "modules.builtin"
    assert rdma_machine.missing_modules(WANTED, tmp_path / "sys", tmp_path / "modules") == ("rdma_ucm",)
    builtin.parent.mkdir(parents=True)
    builtin.write_text("kernel/drivers/infiniband/core/rdma_ucm.ko\n")
    assert rdma_machine.missing_modules(WANTED, tmp_path / "sys", tmp_path / "modules") == ()


def test_modules_are_not_looked_at_when_none_is_loaded(tmp_path):
    wanted = Wanted(WANTED.modules, "", "", load=False)
    assert rdma_machine.missing_modules(wanted, tmp_path, tmp_path) == ()


def modprobe(monkeypatch, broken=()):
    ran = []

    def run(argv, check=True):
        ran.append(list(argv))
        rc = 1 if argv[-1] in broken else 0
        return Completed(tuple(argv), rc, "", f"modprobe: FATAL: Module {argv[-1]} not found." if rc else "")

    monkeypatch.setattr(rdma_machine, "run", run)
    return ran


def test_unloadable(monkeypatch):
    ran = modprobe(monkeypatch, broken=["b"])
    (message,) = rdma_machine.unloadable(["a", "b"])
    assert message.startswith("kernel module b does not exist")
    assert "rdma_modules" in message
    assert all("--dry-run" in argv for argv in ran)


def test_apply(tmp_path, monkeypatch):
    ran = modprobe(monkeypatch)
    planned = decide(WANTED, str(tmp_path), rdma_machine.current_files(tmp_path, WANTED), ["rdma_ucm"])
    rdma_machine.apply(planned, tmp_path / "record.json", tmp_path)
    assert ran == [["modprobe", "--show-depends", "rdma_ucm"], ["modprobe", "rdma_ucm"]]
    assert not decide(WANTED, str(tmp_path), rdma_machine.current_files(tmp_path, WANTED), []).plan.changed
    gone = Wanted((), "", "")
    rdma_machine.apply(
        decide(gone, str(tmp_path), rdma_machine.current_files(tmp_path, gone), []), tmp_path / "record.json", tmp_path
    )
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"record.json", made.RECORD}


def test_every_module_is_tried(tmp_path, monkeypatch):
    ran = modprobe(monkeypatch, broken=["a", "b"])
    with pytest.raises(HostError, match=r"the files are written.*Module a not found.*Module b not found"):
        rdma_machine.apply(RdmaPlan(modules=("a", "b", "c")), tmp_path / "record.json", tmp_path)
    assert [argv for argv in ran if len(argv) == 2] == [["modprobe", name] for name in "abc"]


@pytest.mark.parametrize(
    ("hard", "memlock", "raises", "allowed"),
    [
        (resource.RLIM_INFINITY, "unlimited", OSError, True),
        (8388608, "8192", OSError, True),
        (8388608, "8193", OSError, False),
        (8388608, "unlimited", OSError, False),
        (8388608, "unlimited", ValueError, False),
        (8388608, "unlimited", None, True),
        (8388608, "", OSError, True),
    ],
)
def test_memlock_allowed(monkeypatch, hard, memlock, raises, allowed):
    def setrlimit(which, limits):
        if raises:
            raise raises("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert rdma_machine.memlock_allowed(memlock) is allowed


@pytest.mark.parametrize(("hard", "text"), [(resource.RLIM_INFINITY, "unlimited"), (8388608, "8192 KiB")])
def test_hard_memlock(monkeypatch, hard, text):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (hard, hard))
    assert rdma_machine.hard_memlock() == text


def test_what_a_module_brings_is_recorded_before_it_and_taken_back_after_it(tmp_path, monkeypatch):
    """As kmod 34 prints it; tls was there before."""
    lib = "/lib/modules/6.12.0/kernel/drivers/net/ethernet/mellanox"
    shown = f"insmod {lib}/mlxfw/mlxfw.ko.xz \ninsmod /lib/modules/6.12.0/kernel/net/tls/tls.ko.xz \ninsmod {lib}/mlx5/core/mlx5_core.ko.xz \n"
    (tmp_path / "module/tls").mkdir(parents=True)
    ran = []

    def run(argv, check=True):
        ran.append(argv)
        return Completed(tuple(argv), 0, shown if "--show-depends" in argv else "", "")

    monkeypatch.setattr(rdma_machine, "run", run)
    record = tmp_path / "record.json"
    rdma_machine.apply(RdmaPlan(modules=("mlx5_core",)), record, tmp_path)
    assert rdma_machine.load_record(record)["modules"] == ["mlxfw", "mlx5_core"]
    for name in ("mlxfw", "mlx5_core"):
        (tmp_path / "module" / name).mkdir()
    back = way_back(rdma_machine.load_record(record), str(tmp_path), {}, rdma_machine.loaded_modules(tmp_path))
    assert back.unload == ("mlx5_core", "mlxfw")
    ran.clear()
    assert rdma_machine.take_back(back, record) == []
    assert ran == [["modprobe", "-r", "mlx5_core"], ["modprobe", "-r", "mlxfw"]]
