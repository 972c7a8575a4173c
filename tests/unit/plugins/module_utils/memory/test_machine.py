from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import host
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import machine
from ansible_collections.gb10.ring.plugins.module_utils.memory.settings import Wanted, decide
from ansible_collections.gb10.ring.plugins.module_utils.memory.settings_checks import checks

FIXTURES = Path(__file__).parents[3] / "fixtures/memory"
KEYS = ("vm.overcommit_memory", "vm.swappiness")
WANTED = Wanted({"vm.overcommit_memory": "0", "vm.swappiness": "10"})


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def roots(tmp_path):
    """A machine as DGX OS leaves it: a swap file, default kernel settings."""
    write(tmp_path / "proc/swaps", (FIXTURES / "swaps-dgx").read_text())
    write(tmp_path / "proc/meminfo", "MemTotal: 127600000 kB\nMemAvailable: 98000000 kB\n")
    write(tmp_path / "proc/sys/vm/swappiness", "60\n")
    write(tmp_path / "proc/sys/vm/overcommit_memory", "1\n")
    write(tmp_path / "etc/fstab", (FIXTURES / "fstab-dgx").read_text())
    (tmp_path / "etc/fstab").chmod(0o664)
    names = {name: tmp_path / name for name in ("proc", "etc", "run", "usr", "sys")}
    return machine.Roots(**names, record=tmp_path / "var/memory-before.json")


@pytest.fixture
def commands(monkeypatch, roots):
    """Commands that were run; swapoff empties the tree's swaps."""
    ran = []

    def run(argv, timeout=60.0, check=True):
        if argv[0] == "busctl":
            return Completed(tuple(argv), 1, "", "no logind here")
        ran.append(list(argv))
        if argv[0] == "swapoff":
            (roots.proc / "swaps").write_text((FIXTURES / "swaps-none").read_text())
        return Completed(tuple(argv), 0, "", "")

    monkeypatch.setattr(machine, "run", run)
    return ran


def planned(roots, wanted=WANTED):
    return decide(machine.look(roots, wanted.sysctls), wanted, roots.places)


def value(roots, key):
    return roots.setting(key).read_text()


def test_look_at_a_fresh_machine(roots):
    state = machine.look(roots, KEYS)
    assert state.values == {"vm.overcommit_memory": "1", "vm.swappiness": "60"}
    assert [area.name for area in state.swaps] == ["/swap.img"]
    assert state.available_kib == 98_000_000
    assert set(state.files.values()) == {""}


def test_apply_and_look_again(roots, commands):
    machine.apply(planned(roots), roots)
    assert commands == [["systemctl", "daemon-reload"], ["swapoff", "-a"]]
    assert value(roots, "vm.swappiness") == "10\n"
    assert "# gb10.ring: /swap.img" in (roots.etc / "fstab").read_text()
    assert (roots.etc / "fstab").stat().st_mode & 0o777 == 0o664
    assert not planned(roots).plan.changed
    assert all(check.ok for check in checks("spark1", machine.look(roots, KEYS), WANTED, roots.places))
    record = json.loads(roots.record.read_text())
    assert record["sysctls"] == {"vm.overcommit_memory": "1", "vm.swappiness": "60"}


def test_apply_of_nothing_touches_nothing(roots, commands):
    machine.apply(planned(roots), roots)
    commands.clear()
    before = {path: path.stat().st_mtime_ns for path in roots.etc.parent.rglob("*")}
    machine.apply(planned(roots), roots)
    assert commands == []
    assert {path: path.stat().st_mtime_ns for path in roots.etc.parent.rglob("*")} == before


def stubborn(monkeypatch, key, refuse=""):
    """A kernel that keeps one value whatever is written, or refuses the write."""
    real = Path.write_text

    def write_text(self, text, **options):
        if str(self).endswith(key):
            if refuse:
                raise OSError(22, refuse)
            return len(text)
        return real(self, text, **options)

    monkeypatch.setattr(Path, "write_text", write_text)


@pytest.mark.parametrize(("refuse", "said"), [("", "it reads 60"), ("Invalid argument", "the kernel refused it")])
def test_a_value_that_does_not_stick_puts_all_back(roots, commands, monkeypatch, refuse, said):
    stubborn(monkeypatch, "vm/swappiness", refuse)
    with pytest.raises(HostError) as error:
        machine.apply(planned(roots), roots)
    assert "vm.swappiness = 10: " in str(error.value)
    assert said in str(error.value)
    assert value(roots, "vm.overcommit_memory") == "1\n"
    assert not (roots.etc / machine.CONF).exists()
    assert commands == []
    assert (roots.etc / "fstab").read_text() == (FIXTURES / "fstab-dgx").read_text()


def test_every_value_that_does_not_stick_is_named(roots, commands, monkeypatch):
    stubborn(monkeypatch, ("vm/swappiness", "vm/overcommit_memory"))
    with pytest.raises(HostError, match=r"vm\.overcommit_memory = 0: .*; vm\.swappiness = 10: "):
        machine.apply(planned(roots), roots)


def test_a_value_that_cannot_be_put_back_is_named(roots, commands, monkeypatch):
    stubborn(monkeypatch, "vm/swappiness", "Invalid argument")
    with pytest.raises(HostError, match=r"not put back: vm\.swappiness = 60"):
        machine.apply(planned(roots), roots)


def test_a_full_disk_puts_the_values_back(roots, commands, monkeypatch):
    def full(path, text, mode=0o644):
        raise HostError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(host, "write_text", full)
    with pytest.raises(HostError, match="No space left on device; the earlier kernel settings are in force again"):
        machine.apply(planned(roots), roots)
    assert value(roots, "vm.swappiness") == "60\n"


def test_swap_that_stays_in_use_is_an_error(roots, commands, monkeypatch):
    monkeypatch.setattr(machine, "run", lambda argv, timeout=60.0, check=True: Completed(tuple(argv), 0, "", ""))
    with pytest.raises(HostError, match=r"swapoff -a ended well and yet /swap\.img"):
        machine.apply(planned(roots), roots)


def test_only_the_first_line_of_a_setting_counts(roots):
    write(roots.setting("vm.swappiness"), "10\n0\n")
    assert machine.look(roots, KEYS).values["vm.swappiness"] == "10"


def test_an_absent_setting_is_none(roots):
    assert machine.look(roots, ["vm.compaction_proactiveness"]).values == {"vm.compaction_proactiveness": None}


def test_units_are_masked_and_own_files_kept(roots, commands):
    own = roots.etc / "systemd/system/data-swap.swap"
    write(own, "[Swap]\nWhat=/data/swap\n")
    write(roots.run / "systemd/generator/dev-zram0.swap", "[Swap]\nWhat=/dev/zram0\n")
    write(roots.run / "systemd/generator/swap.img.swap", "[Unit]\nSourcePath=/etc/fstab\n")
    write(roots.usr / "lib/systemd/system/systemd-zram-setup@.service", "[Service]\n")
    machine.apply(planned(roots), roots)
    directory = roots.etc / "systemd/system"
    masked = sorted(path.name for path in directory.iterdir() if path.is_symlink())
    assert masked == ["data-swap.swap", "dev-zram0.swap", "systemd-zram-setup@.service"]
    assert all((directory / name).readlink() == Path(os.devnull) for name in masked)
    assert (directory / "data-swap.swap.gb10-ring").read_text() == "[Swap]\nWhat=/data/swap\n"
    assert not planned(roots).plan.changed
    record = json.loads(roots.record.read_text())
    assert record["units"]["data-swap.swap"] == str(own) + ".gb10-ring"


def test_config_files_of_all_directories(roots):
    write(roots.etc / "sysctl.d/99-a.conf", "vm.swappiness = 60\n")
    write(roots.usr / "lib/sysctl.d/99-b.conf", "vm.overcommit_memory = 1\n")
    write(roots.usr / "lib/sysctl.d/99-c.conf", "vm.swappiness = 1\n")
    (roots.etc / "sysctl.d/99-c.conf").symlink_to(os.devnull)
    (roots.etc / "sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")  # dangling on Debian 13
    write(roots.run / "sysctl.d/99-d.txt", "vm.swappiness = 1\n")
    found = [(Path(entry.path).name, entry.key) for entry in planned(roots).foreign]
    assert found == [("99-b.conf", "vm.overcommit_memory"), ("99-a.conf", "vm.swappiness")]


def test_a_damaged_record_stops_before_any_change(roots, commands):
    write(roots.record, "not json")
    with pytest.raises(HostError, match=r"memory-before\.json is not the JSON"):
        machine.apply(planned(roots), roots)
    assert value(roots, "vm.swappiness") == "60\n"


def test_dropping_the_settings_removes_our_file(roots, commands):
    machine.apply(planned(roots), roots)
    machine.apply(planned(roots, Wanted({})), roots)
    assert not (roots.etc / machine.CONF).exists()
