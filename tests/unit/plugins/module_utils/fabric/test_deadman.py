# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arming, confirming and rolling back, with stand-ins for systemd."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import before, deadman, guard
from ansible_collections.gb10.ring.plugins.module_utils.fabric.change import Edit, NetworkPlan
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.plugins.module_utils.plan import Plan
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_change import state
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link

OURS, CX7 = "/etc/netplan/60-gb10-ring.yaml", "/etc/netplan/40-cx7.yaml"
COPY = before.copy_path(CX7)
PLANNED = NetworkPlan(
    plan=Plan(),
    edits=(Edit(COPY, "old\n"), Edit(CX7, None), Edit(OURS, "new \udcff\n")),
    wanted={"e0": state("10.0.0.1/24")},
    checks=(),
    activate=True,
)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.links(link("e0", "192.168.0.1/24"))
    for name in ("systemctl", "systemd-run"):
        stand_ins.script(name, "exit 0")
    return stand_ins


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "etc/netplan").mkdir(parents=True)
    (folder / "var/lib").mkdir(parents=True)
    (folder / CX7.lstrip("/")).write_text("old\n")
    return folder


def leftovers(root) -> list[str]:
    return [name for name in (deadman.FOLDER, deadman.BOOT_UNIT, deadman.BOOT_LINK) if (root / name).exists()]


def test_apply_arms_first_then_writes_then_asks_for_the_apply(commands, root):
    commands.script("systemd-run", f"ls {root}/etc/netplan >>{root}/seen; echo . >>{root}/seen")
    deadman.apply(root, PLANNED, ("e0", "absent"), 45)
    assert (root / "seen").read_text().split() == ["40-cx7.yaml", ".", "60-gb10-ring.yaml", "."]
    assert (root / OURS.lstrip("/")).read_bytes() == b"new \xff\n"
    assert (root / OURS.lstrip("/")).stat().st_mode & 0o777 == 0o600
    assert (root / before.FOLDER.lstrip("/")).stat().st_mode & 0o777 == 0o700
    armed, asked = commands.calls("systemd-run")
    assert "--unit=gb10-ring-fabric-rollback " in armed
    assert "--on-active=45s" in armed
    assert armed.endswith(f"guard.py expire {root / deadman.FOLDER}")
    assert asked.endswith(f"guard.py apply {root / deadman.FOLDER}")
    kept = guard.load(root / deadman.FOLDER)
    assert list(kept["links"]) == ["e0"]
    assert kept["links"]["e0"]["addresses"] == [{"cidr": "192.168.0.1/24", "dynamic": False}]
    assert [file["content"] is None for file in kept["files"]] == [True, False, True]
    found = deadman.status(root)
    assert (found["leftover"], found["outcome"]) == ("armed", None)
    assert 30 < found["seconds_left"] <= 45
    assert "ConditionPathExists=" in (root / deadman.BOOT_UNIT).read_text()
    assert (root / deadman.BOOT_LINK).resolve() == root / deadman.BOOT_UNIT


def test_confirm_then_clean_leave_the_new_network_and_nothing_else(commands, root):
    deadman.apply(root, PLANNED, ("e0",), 45)
    deadman.confirm(root)
    assert deadman.status(root)["leftover"] == "confirmed"
    assert "stop gb10-ring-fabric-rollback.timer" in commands.calls("systemctl")
    assert deadman.clean(root)
    assert leftovers(root) == []
    assert (root / OURS.lstrip("/")).exists()
    assert deadman.status(root)["leftover"] == "none"
    assert not deadman.clean(root)


def test_an_unconfirmed_change_is_not_cleaned(commands, root):
    deadman.apply(root, PLANNED, ("e0",), 45)
    assert not deadman.clean(root)
    assert deadman.status(root)["leftover"] == "armed"


def test_confirming_too_late_says_what_happened(commands, root, monkeypatch):
    monkeypatch.setattr(guard, "GRACE", 0.0)
    monkeypatch.setattr(guard, "SETTLE", 0.0)
    commands.script("netplan", "exit 0")
    deadman.apply(root, PLANNED, ("e0",), 45)
    guard.main(["expire", str(root / deadman.FOLDER)])
    with pytest.raises(HostError, match=r"the change was undone at .*: it was not confirmed in time"):
        deadman.confirm(root)
    assert (root / CX7.lstrip("/")).read_text() == "old\n"
    assert leftovers(root) == []
    said = deadman.describe(deadman.status(root))
    assert said.startswith("the earlier network was restored at ")


def test_confirming_what_never_was(commands, root):
    (root / deadman.FOLDER).parent.mkdir(parents=True)
    with pytest.raises(HostError, match="an unknown time: no reason known"):
        deadman.confirm(root)
    assert deadman.describe(deadman.status(root)) == ""


@pytest.mark.parametrize("fault", ["no timer", "no backup", "no look"])
def test_without_a_way_back_nothing_is_changed(commands, root, fault):
    edits = PLANNED.edits
    if fault == "no timer":
        commands.script("systemd-run", "echo 'Failed to connect to bus' >&2; exit 1")
    elif fault == "no look":
        commands.script("ip", "echo no JSON")
    else:
        edits = (Edit("/etc/netplan/40-cx7.yaml/x", "new\n"), *edits)
    with pytest.raises(HostError, match="cannot prepare the way back, so nothing was changed: "):
        deadman.apply(root, replace(PLANNED, edits=edits), ("e0",), 45)
    assert leftovers(root) == []
    assert not (root / OURS.lstrip("/")).exists()
    assert (root / CX7.lstrip("/")).exists()


def test_a_file_that_cannot_be_written_starts_the_restore(commands, root, monkeypatch):
    put = guard.put

    def full(file):
        if file["path"].endswith(OURS):
            raise OSError(28, "No space left on device")
        put(file)

    monkeypatch.setattr(guard, "put", full)
    with pytest.raises(
        HostError, match=r"60-gb10-ring.yaml: No space left on device. The earlier network is being restored"
    ):
        deadman.apply(root, PLANNED, (), 45)
    assert commands.calls("systemd-run")[-1].endswith(f"guard.py restore {root / deadman.FOLDER}")
    assert deadman.status(root)["leftover"] == "armed"


def test_roll_back_asks_systemd(commands, root):
    assert not deadman.roll_back(root)
    deadman.apply(root, PLANNED, ("e0",), 45)
    assert deadman.roll_back(root)
    assert commands.calls("systemd-run")[-1].endswith(f"guard.py restore {root / deadman.FOLDER}")


def test_files_that_need_no_apply(commands, root):
    deadman.write_only(root, PLANNED)
    assert (root / COPY.lstrip("/")).read_text() == "old\n"
    assert commands.calls("systemd-run") == []
    deadman.write_only(root, NetworkPlan(plan=Plan(), edits=(Edit(COPY, None),), wanted={}, checks=(), activate=False))
    assert list((root / "var/lib").iterdir()) == []  # no empty folders stay


def test_directories_that_were_made_for_files_go_with_the_last_change(commands, root):
    made = Edit("/etc/netplan.d/60-gb10-ring.yaml", "new\n")
    (root / "run/gb10-ring/cabling").mkdir(parents=True)
    deadman.apply(root, replace(PLANNED, edits=(made, Edit(COPY, "old\n"))), (), 45)
    deadman.confirm(root)
    assert deadman.clean(root)
    assert (root / "etc/netplan.d").is_dir()
    deadman.apply(root, replace(PLANNED, edits=(replace(made, text=None), Edit(COPY, None))), (), 45)
    deadman.confirm(root)
    assert deadman.clean(root)
    assert not (root / "etc/netplan.d").exists()
    assert list((root / "var/lib").iterdir()) == []
    assert list((root / "run").iterdir()) == []


def test_a_node_that_has_nothing_of_ours_yet_has_nothing_to_clean(commands, root):
    assert deadman.clean(root) is False
    assert list((root / "var/lib").iterdir()) == []
