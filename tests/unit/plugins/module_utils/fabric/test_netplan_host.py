# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation on a copy, apply, and the way back, with stand-ins for netplan and ip."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import State, plan_netplan
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan_host import (
    apply,
    locate,
    read_links,
    read_state,
    validate,
)
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

NAME = "/etc/netplan/60-gb10-ring.yaml"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    stand_ins = Commands(tmp_path / "bin", monkeypatch)
    stand_ins.links(link("enp1s0f0np0", "10.100.0.1/24"))
    stand_ins.script("netplan", "exit 0")
    return stand_ins


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "etc/netplan").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "name", ["/etc/netplan/60-x.conf", "/etc/60-x.yaml", "60-x.yaml", "/etc/netplan/../x.yaml", "/etc/netplan/a/b.yaml"]
)
def test_only_a_file_that_netplan_reads(tmp_path, name):
    with pytest.raises(HostError, match=r"path is '.*', expected a file directly in /etc/netplan"):
        locate(name, tmp_path)


def test_locate(tmp_path):
    assert locate(NAME, tmp_path) == tmp_path / "etc/netplan/60-gb10-ring.yaml"


def test_state(commands, root):
    path = locate(NAME, root)
    assert read_state(path).text is None
    path.write_text("network: {}\n")
    path.chmod(0o640)
    state = read_state(path)
    assert (state.text, state.mode, list(state.links)) == ("network: {}\n", 0o640, ["enp1s0f0np0"])


def test_ip_that_prints_no_json(commands):
    commands.script("ip", "echo nothing useful")
    with pytest.raises(HostError, match="ip -j addr: not the JSON that was expected"):
        read_links()


def test_validation_sees_all_files_and_changes_none(commands, root, tmp_path):
    """netplan gets the machine's three folders with the new file in them, closed to others."""
    for folder in ("run/netplan", "usr/lib/netplan"):
        (root / folder).mkdir(parents=True)
    (root / "etc/netplan/01-management.yaml").write_text("a\n")
    (root / "run/netplan/02-x.yaml").write_text("b\n")
    (root / "usr/lib/netplan/03-y.yaml").write_text("c\n")
    (root / "usr/lib/netplan/generate").write_text("not a configuration\n")
    commands.script(
        "netplan", f"cp -a $3 {tmp_path}/seen; (cd $3 && find . -type f -printf '%m %P\\n' | sort) >{tmp_path}/list"
    )
    path = locate(NAME, root)
    validate(path, "new\n", root)
    assert (tmp_path / "list").read_text().splitlines() == [
        "600 etc/netplan/01-management.yaml",
        "600 etc/netplan/60-gb10-ring.yaml",
        "600 run/netplan/02-x.yaml",
        "600 usr/lib/netplan/03-y.yaml",
    ]
    assert (tmp_path / "seen/etc/netplan/60-gb10-ring.yaml").read_text() == "new\n"
    assert (tmp_path / "seen/lib/netplan/03-y.yaml").read_text() == "c\n"
    assert not path.exists()
    (copy,) = [call.split()[-1] for call in commands.calls("netplan")]
    assert not (tmp_path / copy).exists()


def test_validation_names_the_broken_file(commands, root):
    commands.script("netplan", 'echo "$3/etc/netplan/10-x.yaml:3:1: Invalid YAML: tabs are not allowed" >&2; exit 1')
    with pytest.raises(
        HostError, match=r"^/etc/netplan/10-x\.yaml, line 3: .*tabs are not allowed\. Nothing was changed"
    ):
        validate(locate(NAME, root), "new\n", root)
    assert list((root / "etc/netplan").iterdir()) == []


def planned(path):
    return plan_netplan(NAME, parse_ports(PORTS[:1], 9000), 9000, read_state(path))


def test_apply_writes_then_activates(commands, root):
    path = locate(NAME, root)
    commands.script("netplan", f"cp {path} {root}/at-apply")
    state, plan = read_state(path), planned(path)
    apply(plan, path, state)
    assert path.read_text() == (root / "at-apply").read_text() == plan.text
    assert path.stat().st_mode & 0o777 == 0o600
    assert commands.calls("netplan") == ["apply"]
    assert not planned(path).plan.changed


def test_a_wrong_mode_is_set_right_without_touching_the_network(commands, root):
    path = locate(NAME, root)
    path.write_text(planned(path).text)
    path.chmod(0o644)
    apply(planned(path), path, read_state(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert commands.calls("netplan") == []


def test_drift_is_applied_without_writing(commands, root):
    path = locate(NAME, root)
    path.write_text(planned(path).text)
    path.chmod(0o600)
    before = path.stat()
    commands.links(link("enp1s0f0np0", "10.100.0.1/24", mtu=1500))
    apply(planned(path), path, read_state(path))
    assert commands.calls("netplan") == ["apply"]
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def failing_for_new(commands, path):
    """A netplan that fails while the new file is there."""
    commands.script("netplan", f"if grep -qs 10.100.0.1/24 {path}; then echo boom >&2; exit 3; fi")


def test_a_failed_apply_brings_the_earlier_file_back(commands, root):
    path = locate(NAME, root)
    path.write_text("# earlier\n")
    path.chmod(0o640)
    failing_for_new(commands, path)
    with pytest.raises(HostError) as caught:
        apply(planned(path), path, read_state(path))
    assert str(caught.value) == "netplan apply: exit 3: boom. The earlier file is back and applied."
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("# earlier\n", 0o640)
    assert commands.calls("netplan") == ["apply", "apply"]


def test_a_failed_first_apply_removes_the_file(commands, root):
    path = locate(NAME, root)
    failing_for_new(commands, path)
    with pytest.raises(HostError, match=r"exit 3: boom\. The new file is removed again and applied\.$"):
        apply(planned(path), path, read_state(path))
    assert not path.exists()


def test_a_netplan_that_only_fails(commands, root):
    path = locate(NAME, root)
    path.write_text("# earlier\n")
    commands.script("netplan", "echo boom >&2; exit 3")
    with pytest.raises(
        HostError, match="The earlier file is back, but applying that failed too: netplan apply: exit 3: boom"
    ):
        apply(planned(path), path, read_state(path))
    assert path.read_text() == "# earlier\n"


def test_a_way_back_that_is_blocked(commands, root):
    """The file cannot be put back: the message says so and how to go on."""
    path = locate(NAME, root)
    commands.script("netplan", f"rm {path}; mkdir {path}; exit 3")
    plan = planned(path)
    with pytest.raises(
        HostError, match=r"Putting the earlier 60-gb10-ring\.yaml back failed too: .* Cure: restore or remove it"
    ):
        apply(plan, path, State("# earlier\n", 0o600, {}))
