from __future__ import annotations

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
