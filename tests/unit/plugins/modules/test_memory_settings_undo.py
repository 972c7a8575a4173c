"""All of the memory settings and all of the way back, on a tree: apply, drift, other options, uninstall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import machine, undo
from ansible_collections.gb10.ring.plugins.modules import memory_settings

FIXTURES = Path(__file__).parents[2] / "fixtures/memory"
TREE = {
    "proc/swaps": (FIXTURES / "swaps-dgx").read_text(),
    "proc/meminfo": "MemAvailable: 98000000 kB\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/vm/overcommit_memory": "1\n",
    "proc/sys/vm/watermark_boost_factor": "15000\n",
    "proc/sys/vm/compaction_proactiveness": "20\n",
    "proc/sys/vm/min_free_kbytes": "45056\n",
    "proc/sys/vm/watermark_scale_factor": "10\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "never\n",
    "etc/fstab": (FIXTURES / "fstab-dgx").read_text(),
    "etc/tmpfiles.d/90-gb10-ring.conf": "# a person's file of the same name\n",
    "etc/systemd/system/data-swap.swap": "[Swap]\nWhat=/data/swap\n",
    "run/systemd/generator/dev-zram0.swap": "[Swap]\nWhat=/dev/zram0\n",
}
ALL = {"profile": "tuned", "remove_ipc": "disabled"}


@pytest.fixture
def commands():
    return []


LOST = {"all areas": 255, "some areas": 64}  # exit status of util-linux when these could not be used


def swapon(tree, argv, check):
    """As util-linux has it; the file `lost` in the tree says which case of LOST this is."""
    if not (tree / "lost").exists():
        (tree / "proc/swaps").write_text((FIXTURES / "swaps-dgx").read_text())
        return Completed(tuple(argv), 0, "", "")
    said = "swapon: cannot open /swap.img: No such file or directory\n"
    done = Completed(tuple(argv), LOST[(tree / "lost").read_text()], "", said)
    if check:
        raise HostError(done.message())
    return done


@pytest.fixture
def tree(tmp_path, monkeypatch, commands):
    (tmp_path / "var/lib").mkdir(parents=True)
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(argv, timeout=60.0, check=True):
        commands.append(" ".join(argv))
        said = {"busctl": "b false\n", "systemctl is-active": "active\nactive\n"}
        if argv[0] == "swapoff":
            (tmp_path / "proc/swaps").write_text((FIXTURES / "swaps-none").read_text())
        if argv[0] == "swapon":
            return swapon(tmp_path, argv, check)
        return Completed(tuple(argv), 0, said.get(argv[0], said.get(" ".join(argv[:2]), "")), "")

    monkeypatch.setattr(machine, "run", run)
    return tmp_path


def call(tree, capsys, check=False, **options):
    arguments = {
        "node": "spark1",
        **{f"{name}_root": str(tree / name) for name in ("proc", "etc", "run", "usr", "sys")},
        "record_path": str(tree / "var/lib/gb10-ring/record.json"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        memory_settings.main()
    result = json.loads(capsys.readouterr().out)
    assert "failed" not in result, result
    return result


def files(tree):
    found = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}
    links = {str(path.relative_to(tree)): str(path.readlink()) for path in tree.rglob("*") if path.is_symlink()}
    directories = {f"{path.relative_to(tree)}/": oct(path.stat().st_mode) for path in tree.rglob("*") if path.is_dir()}
    return {**found, **links, **directories}


def test_everything_is_set_and_everything_comes_back_byte_for_byte(tree, capsys, commands):
    before = files(tree)
    call(tree, capsys, **ALL)
    assert call(tree, capsys, **ALL)["changed"] is False
    set_now = files(tree)
    assert set_now["sys/kernel/mm/transparent_hugepage/enabled"] == "madvise\n"
    assert "RemoveIPC=no" in set_now["etc/systemd/logind.conf.d/90-gb10-ring.conf"]
    assert set_now["etc/tmpfiles.d/90-gb10-ring.conf"].endswith("enabled - - - - madvise\n")
    assert "def raise_values" in set_now["usr/local/lib/gb10-ring/memory_serving.py"]
    wants = "etc/systemd/system/gb10-ring-engine.service.wants/gb10-ring-memory-serving.service"
    assert set_now[wants].endswith("/etc/systemd/system/gb10-ring-memory-serving.service")
    assert set_now["proc/sys/vm/min_free_kbytes"] == "45056\n"  # the engine does not serve yet

    predicted = call(tree, capsys, check=True, state="absent")
    assert files(tree) == set_now
    commands.clear()
    result = call(tree, capsys, state="absent")
    assert (result["diff"], result["notes"]) == (predicted["diff"], [])
    assert files(tree) == before
    assert commands.index("systemctl stop gb10-ring-memory-serving.service") < commands.index("systemctl daemon-reload")
    assert "swapon -a" in commands
    assert call(tree, capsys, state="absent")["changed"] is False


def test_other_options_then_uninstall_still_return_to_the_first_state(tree, capsys):
    before = files(tree)
    call(tree, capsys, **ALL)
    call(tree, capsys, profile="conservative", thp="always", sysctls={"vm.swappiness": 1})
    (tree / "proc/sys/vm/swappiness").write_text("1\n")
    call(tree, capsys, state="absent")
    assert files(tree) == before


def test_what_somebody_else_changed_since_stays_and_is_named(tree, capsys):
    call(tree, capsys, **ALL)
    (tree / "proc/sys/vm/swappiness").write_text("33\n")
    (tree / "etc/systemd/logind.conf.d/90-gb10-ring.conf").write_text("[Login]\nRemoveIPC=yes\n")
    with (tree / "etc/fstab").open("a") as handle:
        handle.write("# gb10.ring: a remark of a person\nserver:/x /x nfs defaults 0 0\n")
    result = call(tree, capsys, state="absent")
    assert [note.removeprefix(str(tree)) for note in result["notes"]] == [
        "vm.swappiness is 33, which gb10.ring did not set; it stays (before gb10.ring it was 60)",
        "/etc/systemd/logind.conf.d/90-gb10-ring.conf is no longer the file that gb10.ring wrote; it stays as it is",
    ]
    fstab = (tree / "etc/fstab").read_text()
    assert fstab == TREE["etc/fstab"] + "# gb10.ring: a remark of a person\nserver:/x /x nfs defaults 0 0\n"


@pytest.mark.parametrize("options", [{"state": "absent"}, {"profile": "conservative"}], ids=["uninstall", "profile"])
def test_values_that_a_killed_unit_left_raised_are_put_back(tree, capsys, options):
    call(tree, capsys, profile="tuned")
    held = {"before": {"vm.min_free_kbytes": "45056"}, "values": {"vm.min_free_kbytes": "1048576"}}
    (tree / "run/gb10-ring").mkdir()
    (tree / "run/gb10-ring/memory-serving.json").write_text(json.dumps(held))
    (tree / "proc/sys/vm/min_free_kbytes").write_text("1048576\n")
    call(tree, capsys, **options)
    assert (tree / "proc/sys/vm/min_free_kbytes").read_text() == "45056\n"
    assert not (tree / "run/gb10-ring/memory-serving.json").exists()


def test_uninstall_where_nothing_was_installed_changes_nothing(tree, capsys):
    before = files(tree)
    result = call(tree, capsys, state="absent")
    assert (result["changed"], result["diff"], result["notes"]) == (False, [], [])
    assert files(tree) == before


@pytest.mark.parametrize(
    "case",
    [
        ("inactive\ninactive\n", None, "45056", True, "the engine does not run"),
        ("active\nactive\n", None, "45056", True, "not yet: the engine is not ready"),
        ("active\nactive\n", "1048576", "1048576", True, "as wanted"),
        ("active\nactive\n", "1048576", "45056", False, "vm.min_free_kbytes = 45056"),
        ("active\ninactive\n", None, "45056", False, "gb10-ring-memory-serving.service does not run"),
        ("inactive\ninactive\n", "1048576", "1048576", False, "the engine does not run, and yet vm.min_free_kbytes"),
    ],
)
def test_raised_values_belong_to_a_serving_engine(tree, capsys, monkeypatch, case):
    engine, state, minimum, ok, found = case
    options = {"profile": "conservative", "serving_sysctls": {"vm.min_free_kbytes": 1048576}}
    call(tree, capsys, **options)
    monkeypatch.setattr(machine, "run", lambda argv, **_other: Completed(tuple(argv), 0, engine, ""))
    (tree / "proc/sys/vm/min_free_kbytes").write_text(f"{minimum}\n")
    if state:
        (tree / "run/gb10-ring").mkdir()
        held = {"before": {"vm.min_free_kbytes": "45056"}, "values": {"vm.min_free_kbytes": state}}
        (tree / "run/gb10-ring/memory-serving.json").write_text(json.dumps(held))
    (check,) = [one for one in call(tree, capsys, check=True, **options)["checks"] if one["id"] == "memory.serving"]
    assert check["ok"] is ok
    assert found in check["found"]


@pytest.mark.parametrize("case", LOST)
def test_a_swap_area_that_is_gone_is_a_note_and_the_rest_comes_back(tree, capsys, case):
    before = files(tree)
    call(tree, capsys, **ALL)
    (tree / "lost").write_text(case)
    result = call(tree, capsys, state="absent")
    (note,) = [text for text in result["notes"] if "/swap.img" in text]
    assert note.startswith("swap area /swap.img is not in use again: it does not exist any more.")
    (tree / "lost").unlink()
    (tree / "proc/swaps").write_text(TREE["proc/swaps"])
    assert files(tree) == before
    assert call(tree, capsys, state="absent")["changed"] is False


def test_a_swap_unit_whose_device_is_gone_does_not_end_the_way_back(tree, capsys, monkeypatch):
    call(tree, capsys, **ALL)
    run = machine.run

    def late(argv, timeout=60.0, check=True):
        if argv[:2] == ["systemctl", "start"]:
            raise HostError(f"{' '.join(argv)} did not end within {timeout:g} s")
        return run(argv, timeout=timeout, check=check)

    monkeypatch.setattr(machine, "run", late)
    assert call(tree, capsys, state="absent")["notes"] == []
    assert (tree / "etc/systemd/system/data-swap.swap").is_file()


@pytest.mark.parametrize(
    ("active", "gone", "said"),
    [
        ({"/swap.img", "/dev/zram0"}, set(), []),
        ({"/swap.img"}, set(), ["swap area /dev/zram0 is not in use again; it comes with the next boot"]),
        ({"/dev/zram0"}, {"/swap.img"}, ["swap area /swap.img is not in use again: it does not exist any more"]),
    ],
)
def test_what_is_said_of_swap_that_is_not_back(active, gone, said):
    notes = undo.swap_notes(["/swap.img", "/dev/zram0"], active, gone)
    assert [note.partition(". ")[0] for note in notes] == said


def test_no_value_is_tried_while_an_engine_of_a_cluster_runs(tree, capsys):
    """It has no unit, and what is available is what it leaves."""
    (tree / "proc/77").mkdir()
    (tree / "proc/77/comm").write_text("VLLM::EngineCor\n")
    (tree / "proc/77/cmdline").write_text("VLLM::EngineCore\0")
    (tree / "proc/77/cgroup").write_text(f"0::/kubepods/burstable/pod1/{'0a' * 32}\n")
    (tree / "proc/meminfo").write_text("MemAvailable: 1500000 kB\n")
    result = call(tree, capsys, check=True, profile="tuned", swap="unmanaged")
    assert result["problems"] == []
