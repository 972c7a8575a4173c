# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import traces_look
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError


@pytest.fixture
def proc(tmp_path):
    """A process 42 that listens at 8000, and has one segment mapped and one open."""
    root = tmp_path / "proc"
    (root / "42/fd").mkdir(parents=True)
    (root / "42/comm").write_text("python3\n")
    (root / "42/cgroup").write_text("0::/user.slice\n")
    (root / "42/fd/3").symlink_to("socket:[77]")
    (root / "42/fd/4").symlink_to(f"{tmp_path}/shm/psm_open")
    (root / "42/maps").write_text(f"7f00-7f01 rw-s 00000000 00:1b 12  {tmp_path}/shm/psm_mapped\n")
    (root / "43").mkdir()
    (root / "net").mkdir()
    (root / "net/tcp6").write_text("head\n 0: 0:1F40 0:0 0A 0:0 0:0 0 0 0 77 1\n 1: 0:1F41 0:0 0A 0:0 0:0 0 0 0 78 1\n")
    (root / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 400 kB\n")
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text("boot1\n")
    return root


def test_who_listens_at_the_ports_of_the_head(proc):
    spec = {"rank": 0, "ports": {"api": 8000, "rendezvous": 8001}}
    found = traces_look.port_holders(proc, traces_look.ports_of(spec))
    assert found[8000].text() == "pid 42 python3"
    assert found[8001].text() == "pid 0 a process of another namespace"
    assert traces_look.ports_of({**spec, "rank": 1}) == []
    assert traces_look.port_holders(proc, []) == {}


def test_shared_memory_that_nobody_has(proc, tmp_path):
    shm = tmp_path / "shm"
    shm.mkdir()
    for name in ("psm_mapped", "psm_open", "psm_left", "other"):
        (shm / name).write_text("x")
    since = os.stat(shm / "psm_left").st_mtime - 1
    assert traces_look.mapped(proc, shm) == {"psm_mapped", "psm_open"}
    assert traces_look.remove_segments(proc, shm, since) == ["psm_left"]
    assert sorted(path.name for path in shm.iterdir()) == ["other", "psm_mapped", "psm_open"]
    assert traces_look.remove_segments(proc, tmp_path / "none", since) == []


def test_the_baseline_is_of_this_boot_and_kept_once(proc, tmp_path):
    run = str(tmp_path / "run")
    assert traces_look.baseline(proc, run) is None
    traces_look.keep_baseline(proc, run)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\n")
    traces_look.keep_baseline(proc, run)
    assert traces_look.baseline(proc, run) == 600
    (proc / "sys/kernel/random/boot_id").write_text("boot2\n")
    assert traces_look.baseline(proc, run) is None


def test_what_the_runtime_is_asked(monkeypatch):
    said = []

    def run(argv, check=True):
        said.append(argv)
        return Completed(tuple(argv), int("image" in argv), "one two\n", "Error: no such image\n")

    monkeypatch.setattr(traces_look, "run", run)
    assert traces_look.containers("docker") == ("one", "two")
    assert said[-1][:4] == ["/usr/bin/docker", "ps", "--filter", "label=gb10.ring.hash"]
    assert traces_look.containers("venv") == ()
    problem = traces_look.image_problem({"renderer": "podman", "container": {"image": "sha256:1"}})
    assert problem.endswith("exit 1: Error: no such image")
    assert said[-1] == ["/usr/bin/podman", "image", "inspect", "--format", "{{.Id}}", "sha256:1"]
    assert traces_look.image_problem({"renderer": "venv", "container": None}) == ""


@pytest.mark.parametrize(
    ("there", "rc", "own"),
    [(("docker",), 0, ("aa", "bb")), (("docker", "podman"), 0, ("aa", "bb") * 2), (("docker",), 1, None), ((), 0, ())],
)
def test_which_containers_are_ours(tmp_path, monkeypatch, *, there, rc, own):
    for name in there:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(traces_look, "RUNTIMES", {name: str(tmp_path / name) for name in ("docker", "podman")})
    said = []
    monkeypatch.setattr(traces_look, "run", lambda argv, check: said.append(argv) or Completed((), rc, "aa\nbb\n", ""))
    assert traces_look.own_containers() == own
    assert all(argv[1:] == ["ps", "--no-trunc", "--quiet", "--filter", "label=gb10.ring.hash"] for argv in said)


def test_the_gpu_is_asked_where_there_is_one(proc, tmp_path, monkeypatch):
    smi = str(tmp_path / "nvidia-smi")
    unknown = {"gpu": None, "gpu_problem": ""}
    assert traces_look.gpu(proc, "") == traces_look.gpu(proc, smi) == unknown
    (tmp_path / "nvidia-smi").write_text("")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(traces_look, "run", lambda argv, check=True: Completed(tuple(argv), 0, "42\n[N/A]\n", ""))
    found = traces_look.gpu(proc, smi)
    ((holder,), problem) = found["gpu"], found["gpu_problem"]
    assert (holder.text(), holder.cgroup, problem) == ("pid 42 python3", "0::/user.slice", "")


@pytest.mark.parametrize(
    ("stdout", "stderr", "says"),
    [
        (
            "NVIDIA-SMI has failed because\nit couldn't communicate\n",
            "",
            "exit 9: NVIDIA-SMI has failed because it couldn't",
        ),
        ("", "Unable to determine the device handle", "exit 9: Unable to determine the device handle"),
        ("", "", "exit 9: no output"),
    ],
)
def test_a_gpu_that_does_not_answer_is_no_free_one(proc, tmp_path, monkeypatch, *, stdout, stderr, says):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("")
    smi.chmod(0o755)
    monkeypatch.setattr(traces_look, "run", lambda argv, check=True: Completed(tuple(argv), 9, stdout, stderr))
    found = traces_look.gpu(proc, str(smi))
    assert found["gpu"] is None
    assert found["gpu_problem"].startswith(f"{smi}: {says}")


def test_an_nvidia_smi_that_hangs_is_told(proc, tmp_path, monkeypatch):
    def hangs(_argv, check=True):
        raise HostError("nvidia-smi did not end within 60 s")

    (tmp_path / "nvidia-smi").write_text("")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(traces_look, "run", hangs)
    assert traces_look.gpu(proc, str(tmp_path / "nvidia-smi"))["gpu_problem"] == "nvidia-smi did not end within 60 s"


def test_what_the_unit_was_rendered_from(tmp_path):
    assert traces_look.record(str(tmp_path)) == {}
    (tmp_path / "gb10-ring").mkdir()
    for text, found in (("[]", {}), ("{", {}), (json.dumps({"rank": 1}), {"rank": 1})):
        (tmp_path / "gb10-ring/engine.json").write_text(text)
        assert traces_look.record(str(tmp_path)) == found


def test_compiled_objects_of_the_cache(tmp_path):
    for name in ("a/cached_ops/x/x.so", "a/cached_ops/x/x.o", "b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert traces_look.kernels({"cache_directory": str(tmp_path)}) == ["a/cached_ops/x/x.o", "a/cached_ops/x/x.so"]
    assert traces_look.kernels({"cache_directory": str(tmp_path / "none")}) == []
