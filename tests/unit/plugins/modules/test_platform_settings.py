"""The module on a tree, with a systemd that keeps unit states."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed
from ansible_collections.gb10.ring.plugins.module_utils.memory import services_host
from ansible_collections.gb10.ring.plugins.modules import platform_settings

CLOCK = "gb10-ring-clock-lock.service"


class Systemd:
    """Units by name as [enabled, active]; the clock unit exists with its file."""

    def __init__(self, tree):
        self.tree = tree
        self.units = {"earlyoom.service": ["enabled", True], "systemd-oomd.service": ["disabled", False]}
        self.link = tree / "etc/systemd/system/default.target"
        self.ran = []

    def run(self, argv, timeout=60.0, check=True):
        words = [word for word in argv if word not in ("--quiet", "--")]
        self.ran.append(" ".join(words))
        return Completed(tuple(argv), 0, self.answer(words), "")

    def answer(self, words):
        if words[:2] == ["systemctl", "show"]:
            if (self.tree / "etc/systemd/system" / CLOCK).exists():
                self.units.setdefault(CLOCK, ["disabled", False])
            else:
                self.units.pop(CLOCK, None)
            return "\n".join(
                f"Id={name}\nLoadState=loaded\nUnitFileState={enabled}\nActiveState={'active' if active else 'inactive'}\n"
                for name, (enabled, active) in self.units.items()
            )
        if words[:2] == ["systemctl", "get-default"]:
            return (self.link.readlink().name if self.link.is_symlink() else "graphical.target") + "\n"
        if words[:2] == ["systemctl", "set-default"]:
            self.link.unlink(missing_ok=True)
            self.link.symlink_to(f"/usr/lib/systemd/system/{words[2]}")
        if words[0] == "systemctl" and words[1] in ("enable", "disable"):
            self.units.setdefault(words[2], ["disabled", False])[0] = f"{words[1]}d"
        if words[0] == "systemctl" and words[1] in ("start", "stop"):
            self.units.setdefault(words[-1], ["disabled", False])[1] = words[1] == "start"
        return (
            'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2200)"\n' if CLOCK in words and "journalctl" in words else ""
        )


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    found = Systemd(tmp_path)
    monkeypatch.setattr(services_host, "run", found.run)
    return found


def call(tree, capsys, check=False, **options):
    arguments = {
        "node": "spark1",
        "etc_root": str(tree / "etc"),
        "record_path": str(tree / "record.json"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        platform_settings.main()
    return json.loads(capsys.readouterr().out)


def files(tree):
    found = [path for path in tree.rglob("*") if path.is_file() or path.is_symlink()]
    return {
        str(path.relative_to(tree)): str(path.readlink()) if path.is_symlink() else path.read_text() for path in found
    }


ALL = {"oom_daemon": "none", "clock_lock": "300,2200", "headless": True}


@pytest.mark.parametrize("link", ["", "/usr/lib/systemd/system/graphical.target"], ids=["no link", "a link"])
def test_all_of_it_and_all_of_it_back(tmp_path, capsys, systemd, link):
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    if link:
        systemd.link.symlink_to(link)
    (tmp_path / "etc/systemd/journald.conf.d").mkdir(parents=True)
    (tmp_path / "etc/systemd/journald.conf.d/90-gb10-ring.conf").write_text("# a person's\n")
    before = files(tmp_path), {name: list(state) for name, state in systemd.units.items()}
    predicted = call(tmp_path, capsys, check=True, **ALL)
    assert files(tmp_path) == before[0]
    assert {check["id"] for check in predicted["checks"] if not check["ok"]} == {
        "memory.services",
        "memory.oom_daemon",
        "memory.clock_lock",
        "memory.headless",
    }
    result = call(tmp_path, capsys, **ALL)
    assert result["diff"] == predicted["diff"]
    assert [check for check in result["checks"] if not check["ok"]] == []
    assert systemd.units == {
        "earlyoom.service": ["disabled", False],
        "systemd-oomd.service": ["disabled", False],
        CLOCK: ["enabled", True],
    }
    assert systemd.link.readlink().name == "multi-user.target"
    assert call(tmp_path, capsys, **ALL)["changed"] is False

    assert call(tmp_path, capsys, check=True, state="absent")["changed"] is True
    result = call(tmp_path, capsys, state="absent")
    assert result["notes"] == []
    call(tmp_path, capsys, check=True)
    assert (files(tmp_path), systemd.units) == before
    assert call(tmp_path, capsys, state="absent")["changed"] is False


def test_the_socket_of_systemd_oomd_is_stopped_with_it(tmp_path, capsys, systemd):
    systemd.units["systemd-oomd.service"] = ["enabled", True]
    call(tmp_path, capsys, oom_daemon="none")
    assert "systemctl stop systemd-oomd.socket systemd-oomd.service" in systemd.ran
    call(tmp_path, capsys, state="absent")
    assert "systemctl start systemd-oomd.socket systemd-oomd.service" in systemd.ran


def test_another_limit_is_set_at_once(tmp_path, capsys, systemd):
    call(tmp_path, capsys, clock_lock="300,2200")
    systemd.ran.clear()
    call(tmp_path, capsys, clock_lock="300,2000")
    assert f"systemctl try-restart {CLOCK}" in systemd.ran


def test_no_limit_any_more_stops_the_unit_before_its_file_goes(tmp_path, capsys, systemd):
    call(tmp_path, capsys, clock_lock="300,2200")
    systemd.ran.clear()
    call(tmp_path, capsys)
    assert systemd.ran.index(f"systemctl stop {CLOCK}") < len(systemd.ran) - 1
    assert not (tmp_path / "etc/systemd/system" / CLOCK).exists()


def test_what_cannot_be_is_told_before_anything_changes(tmp_path, capsys, systemd):
    del systemd.units["earlyoom.service"]
    result = call(tmp_path, capsys, oom_daemon="earlyoom", clock_lock="fast")
    assert "spark1: nothing was changed: clock_lock is 'fast'" in result["msg"]
    assert "earlyoom, which is not installed" in result["msg"]
    assert files(tmp_path) == {}
    assert len(call(tmp_path, capsys, check=True, oom_daemon="earlyoom", clock_lock="fast")["problems"]) == 2


def test_a_damaged_record_stops_it(tmp_path, capsys, systemd):
    (tmp_path / "record.json").write_text("[]")
    assert "is not the JSON mapping that platform_settings writes" in call(tmp_path, capsys)["msg"]
    assert sorted(files(tmp_path)) == ["record.json"]
