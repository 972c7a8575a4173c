from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed
from ansible_collections.gb10.ring.plugins.module_utils.memory import machine
from ansible_collections.gb10.ring.plugins.modules import memory_settings

FIXTURES = Path(__file__).parents[2] / "fixtures/memory"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A fresh machine; swapoff empties its swaps."""
    for name, text in {
        "proc/swaps": (FIXTURES / "swaps-dgx").read_text(),
        "proc/meminfo": "MemAvailable: 98000000 kB\n",
        "proc/sys/vm/swappiness": "60\n",
        "etc/fstab": (FIXTURES / "fstab-dgx").read_text(),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(argv, timeout=60.0, check=True):
        if argv[0] == "swapoff":
            (tmp_path / "proc/swaps").write_text((FIXTURES / "swaps-none").read_text())
        return Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(machine, "run", run)
    return tmp_path


def call(tree, capsys, check=False, **options):
    arguments = {
        "node": "spark1",
        "sysctls": {"vm.swappiness": 10},
        **{f"{name}_root": str(tree / name) for name in ("proc", "etc", "run", "usr", "sys")},
        "record_path": str(tree / "record.json"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        memory_settings.main()
    return json.loads(capsys.readouterr().out)


def files(tree):
    return {str(path): path.read_text() for path in tree.rglob("*") if path.is_file()}


def bad(result):
    return [check["id"] for check in result["checks"] if not check["ok"]]


def test_check_mode_shows_everything_and_changes_nothing(tree, capsys):
    before = files(tree)
    result = call(tree, capsys, check=True)
    assert result["changed"] is True
    assert [entry["before_header"].removeprefix(str(tree)) for entry in result["diff"]] == [
        "vm.swappiness",
        "/etc/sysctl.d/90-gb10-ring.conf",
        "/etc/fstab",
        "/proc/swaps",
    ]
    assert bad(result) == ["memory.swap", "memory.swap_boot", "memory.sysctl", "memory.persisted"]
    assert result["after"] == result["before"]
    assert files(tree) == before


def test_apply_then_nothing_is_left_to_do(tree, capsys):
    predicted = call(tree, capsys, check=True)["diff"]
    result = call(tree, capsys)
    assert result["diff"] == predicted
    assert bad(result) == []
    assert result["before"]["sysctls"] == {"vm.swappiness": "60"}
    assert result["after"] == {"sysctls": {"vm.swappiness": "10"}, "swaps": [], "swap_at_boot": []}
    again = call(tree, capsys)
    assert (again["changed"], again["diff"]) == (False, [])


def test_another_value_changes_only_that(tree, capsys):
    call(tree, capsys)
    result = call(tree, capsys, sysctls={"vm.swappiness": 1})
    assert [entry["before_header"].removeprefix(str(tree)) for entry in result["diff"]] == [
        "vm.swappiness",
        "/etc/sysctl.d/90-gb10-ring.conf",
    ]
    assert json.loads((tree / "record.json").read_text())["sysctls"] == {"vm.swappiness": "60"}


def test_refusal_changes_nothing(tree, capsys):
    (tree / "proc/swaps").write_text((FIXTURES / "swaps-zram").read_text())
    (tree / "proc/meminfo").write_text("MemAvailable: 48576 kB\n")
    before = files(tree)
    result = call(tree, capsys)
    assert result["failed"] is True
    assert "spark1: nothing was changed: swapoff refused: 1049088 KiB are swapped out" in result["msg"]
    assert "1000512 KiB too few" in result["msg"]
    assert files(tree) == before


def test_refusal_in_check_mode_is_a_warning(tree, capsys, monkeypatch):
    warned = []
    monkeypatch.setattr(memory_settings.AnsibleModule, "warn", lambda self, text: warned.append(text))
    (tree / "proc/swaps").write_text((FIXTURES / "swaps-zram").read_text())
    (tree / "proc/meminfo").write_text("MemAvailable: 1 kB\n")
    result = call(tree, capsys, check=True, sysctls={"vm.swappiness": 10, "vm.absent": 1})
    assert len(result["problems"]) == 2
    assert warned == [f"spark1: would fail: {problem}" for problem in result["problems"]]


@pytest.mark.parametrize(
    ("sysctls", "said"),
    [
        ({"vm.absent": 1}, "vm.absent: this kernel has no such setting"),
        ({"swappiness": 1, "vm.swappiness": True}, "spark1: sysctls: 'swappiness' is not the name"),
    ],
)
def test_settings_that_cannot_be(tree, capsys, sysctls, said):
    before = files(tree)
    result = call(tree, capsys, sysctls=sysctls)
    assert said in result["msg"]
    assert files(tree) == before


def test_unmanaged_swap_is_left_and_not_checked(tree, capsys):
    result = call(tree, capsys, swap="unmanaged")
    assert result["after"]["swaps"] == ["/swap.img (file, 16777212 KiB, 0 KiB used)"]
    assert {check["id"] for check in result["checks"]} == {"memory.sysctl", "memory.persisted"}
    assert (tree / "etc/fstab").read_text() == (FIXTURES / "fstab-dgx").read_text()


def test_foreign_files_are_reported(tree, capsys):
    (tree / "usr/lib/sysctl.d").mkdir(parents=True)
    (tree / "usr/lib/sysctl.d/99-x.conf").write_text("vm.swappiness = 60\n")
    result = call(tree, capsys)
    assert [entry.removeprefix(str(tree)) for entry in result["foreign"]] == [
        "/usr/lib/sysctl.d/99-x.conf:1: vm.swappiness = 60"
    ]
    assert bad(result) == ["memory.foreign"]


@pytest.fixture
def kernel(tree, monkeypatch):
    """A kernel that takes numbers only; returns what was written to it."""
    (tree / "proc/sys/vm/min_free_kbytes").write_text("45056\n")
    write, written = Path.write_text, []

    def taken(path, text, **options):
        if path.parent.name == "vm":
            written.append((path.name, text.strip()))
            if not text.strip().isdecimal():
                raise OSError(errno.EINVAL, "Invalid argument")
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", taken)
    return written


RESERVE = {"sysctls": {}, "swap": "unmanaged", "serving_sysctls": {"vm.min_free_kbytes": 1048576}}


def test_serving_settings_are_tried_and_put_back_before_they_are_persisted(tree, capsys, kernel):
    assert call(tree, capsys, check=True, **RESERVE)["changed"] and kernel == []
    assert call(tree, capsys, **RESERVE)["changed"]
    assert kernel == [("min_free_kbytes", "1048576"), ("min_free_kbytes", "45056")]
    assert not call(tree, capsys, **RESERVE)["changed"]
    assert len(kernel) == 2  # what is persisted has been tried


def test_a_serving_setting_that_the_kernel_refuses_is_not_persisted(tree, capsys, kernel):
    before = files(tree)
    result = call(tree, capsys, serving_sysctls={"vm.min_free_kbytes": "bad"})
    said = "spark1: nothing was changed: serving settings were tried: vm.min_free_kbytes = bad: the kernel refused it: Invalid argument"
    assert result["msg"].startswith(said), result
    assert files(tree) == before


def test_a_reserve_beyond_what_is_there_is_not_even_tried(tree, capsys, kernel):
    result = call(tree, capsys, serving_sysctls={"vm.min_free_kbytes": 60_000_000})
    assert "60000000 while serving is more than half of the 98000000 KiB that are available now" in result["msg"]
    assert kernel == []


def test_a_running_engine_loses_no_memory_to_a_trial(tree, capsys, kernel, monkeypatch):
    warned = []
    monkeypatch.setattr(memory_settings.AnsibleModule, "warn", lambda self, text: warned.append(text))
    monkeypatch.setattr(machine, "engine_runs", lambda proc: True)
    assert call(tree, capsys, **RESERVE)["changed"]
    assert kernel == []
    assert len(warned) == 1 and "the engine runs, so the serving settings were not tried" in warned[0]
