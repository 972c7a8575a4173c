"""The module on a tree, with a systemd that keeps unit states."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import services_host
from ansible_collections.gb10.ring.plugins.modules import platform_settings

CLOCK = "gb10-ring-clock-lock.service"
SMI = "/usr/bin/nvidia-smi"
REFUSALS = {
    "refused": (3, "Failed to set locked GPU clocks: Invalid argument\nTerminating early due to previous errors.\n"),
    "not supported": (
        0,
        "Setting locked GPU clocks is not supported for GPU 0000000F:01:00.0.\nTreating as warning and moving on.\nAll done.\n",
    ),
}


class Systemd:
    """Units by name as [enabled, active]; the clock unit exists with its file."""

    def __init__(self, tree):
        self.tree = tree
        self.units = {"earlyoom.service": ["enabled", True], "systemd-oomd.service": ["disabled", False]}
        self.link = tree / "etc/systemd/system/default.target"
        self.ran = []
        self.refused = {}  # command without options of systemctl -> exit status and what it says

    def run(self, argv, timeout=60.0, check=True):
        words = [word for word in argv if word not in ("--quiet", "--")]
        self.ran.append(" ".join(words))
        rc, said = self.refused.get(" ".join(words), (0, ""))
        done = Completed(tuple(argv), rc, said or self.answer(words), "")
        if rc and check:
            raise HostError(done.message())
        return done

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
        if words[:2] == [SMI, "-lgc"]:
            low, high = words[2].split(",")
            return f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" for GPU 0000000F:01:00.0\nAll done.\n'
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
        "record_path": str(tree / "gb10-ring/record.json"),
        "_ansible_check_mode": check,
        **options,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        platform_settings.main()
    return json.loads(capsys.readouterr().out)


def files(tree):
    """Files, links and directories."""
    found = {}
    for path in tree.rglob("*"):
        said = (
            str(path.readlink())
            if path.is_symlink()
            else oct(path.stat().st_mode)
            if path.is_dir()
            else path.read_text()
        )
        found[str(path.relative_to(tree))] = said
    return found


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
    (tmp_path / "gb10-ring").mkdir()
    (tmp_path / "gb10-ring/record.json").write_text("[]")
    assert "is not the JSON mapping that platform_settings writes" in call(tmp_path, capsys)["msg"]
    assert sorted(files(tmp_path)) == ["gb10-ring", "gb10-ring/record.json"]


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_limit_that_is_refused_leaves_nothing_behind(tmp_path, capsys, systemd, refusal):
    systemd.refused = {f"{SMI} -lgc 9,99999": refusal, f"systemctl start {CLOCK}": (1, "Job failed.")}
    before = files(tmp_path), {name: list(state) for name, state in systemd.units.items()}
    result = call(tmp_path, capsys, clock_lock="9,99999", oom_daemon="none")
    assert "spark1: nothing was changed: clock_lock is '9,99999', which nvidia-smi does not take" in result["msg"]
    assert refusal[1].splitlines()[0] in result["msg"]
    assert (files(tmp_path), systemd.units) == before


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_an_earlier_limit_outlives_one_that_is_refused(tmp_path, capsys, systemd, refusal):
    call(tmp_path, capsys, clock_lock="300,2200")
    before = files(tmp_path), {name: list(state) for name, state in systemd.units.items()}
    systemd.refused = {f"{SMI} -lgc 9,99999": refusal}
    systemd.ran.clear()
    assert "nothing was changed" in call(tmp_path, capsys, clock_lock="9,99999")["msg"]
    assert (files(tmp_path), systemd.units) == before
    assert not [line for line in systemd.ran if line.startswith("systemctl") and line.split()[1] not in READS]
    assert call(tmp_path, capsys, clock_lock="300,2200")["changed"] is False


READS = ("show", "get-default")


def test_a_dry_run_tries_no_limit(tmp_path, capsys, systemd):
    call(tmp_path, capsys, check=True, clock_lock="300,2200")
    assert not [line for line in systemd.ran if SMI in line]


@pytest.mark.parametrize("earlier", ["", "300,2000"])
def test_a_limit_is_taken_back_when_its_unit_does_not_start(tmp_path, capsys, systemd, earlier):
    call(tmp_path, capsys, clock_lock=earlier)
    unit = tmp_path / "etc/systemd/system" / CLOCK
    before = (unit.read_text() if earlier else None), list(systemd.units.get(CLOCK, []))
    systemd.refused = {f"systemctl {verb} {CLOCK}": (1, "Job failed.") for verb in ("start", "try-restart")}
    systemd.ran.clear()
    assert "Job failed" in call(tmp_path, capsys, clock_lock="300,2200")["msg"]
    assert (unit.read_text() if earlier else None) == before[0] and unit.exists() is bool(earlier)
    assert systemd.units.get(CLOCK, ["disabled", False]) == (before[1] or ["disabled", False])
    assert systemd.ran[-1] == (f"systemctl restart {CLOCK}" if earlier else f"{SMI} -rgc")


@pytest.mark.parametrize("name", ["nvidia-persistenced.service", "earlyoom.service"])
def test_a_unit_that_does_not_start_is_not_enabled(tmp_path, capsys, systemd, name):
    systemd.units[name] = ["disabled", False]
    systemd.refused = {f"systemctl start {name}": (1, "Job failed.")}
    options = {"oom_daemon": "earlyoom"} if name.startswith("earlyoom") else {}
    assert "Job failed" in call(tmp_path, capsys, **options)["msg"]
    assert systemd.units[name] == ["disabled", False]


def test_a_unit_that_cannot_come_back_is_a_note_and_the_rest_comes_back(tmp_path, capsys, systemd):
    before = files(tmp_path)
    call(tmp_path, capsys, **ALL)
    systemd.refused = {
        "systemctl start earlyoom.service": (1, "earlyoom has no configuration any more"),
        f"systemctl disable {CLOCK}": (1, f"Unit file {CLOCK} does not exist."),
    }
    result = call(tmp_path, capsys, state="absent")
    assert [note.partition(": ")[0] for note in result["notes"]] == [
        "earlyoom.service is not as it was before gb10.ring",
        f"{CLOCK} is not as it was before gb10.ring",
    ]
    assert "no configuration any more" in result["notes"][0]
    after = files(tmp_path)
    assert {path for path in after if path.endswith((".conf", ".json", ".target", ".service"))} == set()
    assert {path: text for path, text in after.items() if path in before} == before
