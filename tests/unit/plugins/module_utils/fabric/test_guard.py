# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that applies and undoes a change: what it sees, the commands that it would give, and its way through a restore."""

from __future__ import annotations

import ast
import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import guard
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_change import state
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_commands import Commands, link

# iproute2 6.15
ADDRESSES = json.dumps(
    [
        {},
        {
            "ifname": "lo",
            "flags": ["UP"],
            "mtu": 65536,
            "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
        },
        {
            "ifname": "e0",
            "flags": ["UP", "LOWER_UP"],
            "mtu": 9000,
            "master": "bond0",
            "addr_info": [
                {"family": "inet", "local": "10.0.0.1", "prefixlen": 24, "scope": "global", "dynamic": True},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
                {"family": "inet6", "local": "fd00::1", "prefixlen": 64, "scope": "global"},
                {},
            ],
        },
    ]
)
ROUTES = [
    "10.0.0.0/24 dev e0 proto kernel scope link src 10.0.0.1",
    "default via 10.0.0.254 dev e0 proto dhcp src 10.0.0.1 metric 100 linkdown",
    "local 10.0.0.1 dev e0 table local proto kernel scope host src 10.0.0.1",
    "multicast ff00::/8 dev e0 table local proto kernel metric 256 pref medium",
    "10.1.0.0/16 via 10.0.0.2 dev e0 table 7 proto static",
    "unreachable 198.18.0.0/15 proto static",
    "default proto static metric 1024",
]


def test_it_can_run_alone():
    """The copy beside the state has no sibling and no ansible."""
    tree = ast.parse(Path(guard.__file__).read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).split(".", maxsplit=1)[0] for name in names} <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]


def test_look_at_interfaces():
    assert guard.parse_look(ADDRESSES, ROUTES, ["e0", "absent"]) == {
        "e0": {
            "up": True,
            "carrier": True,
            "mtu": 9000,
            "master": "bond0",
            "addresses": [{"cidr": "10.0.0.1/24", "dynamic": True}, {"cidr": "fd00::1/64", "dynamic": False}],
            "link_local": True,
            "link_locals": ["fe80::1/64"],
            "routes": [
                "10.1.0.0/16 via 10.0.0.2 dev e0 table 7 proto static",
                "default via 10.0.0.254 dev e0 proto dhcp src 10.0.0.1 metric 100",
            ],
        }
    }


A, B, SIX = "10.0.0.1/24", "10.0.0.2/24", "fd00::1/64"
ROUTE = "default via 10.0.0.254 dev e0 proto static"
ROUTE6 = "default via fe80::9 dev e0 proto ra metric 100 pref medium"


@pytest.mark.parametrize(
    ("want", "seen", "add", "commands"),
    [
        ({}, state(A, mtu=1500, up=False), True, []),
        (state(A), state(A), True, []),
        (state(A), state(), False, []),  # the renderer brings it
        (state(A), state(), True, [f"ip addr add {A} brd + dev e0"]),
        (state(SIX), state(), True, [f"ip addr add {SIX} dev e0"]),
        (state(A), state(B), False, [f"ip addr del {B} dev e0"]),
        (state(A), state(A, SIX), False, [f"ip addr del {SIX} dev e0"]),
        ({"addresses": [], "link_local": False}, state(local="fe80::1/64"), False, ["ip addr del fe80::1/64 dev e0"]),
        ({"addresses": [], "link_local": True}, state(local="fe80::1/64"), False, []),
        ({"addresses": []}, state(local="fe80::1/64"), False, []),
        ({**state(A), "keep_dynamic": True}, state(A, B, dynamic=True), True, []),  # a renewed lease
        ({**state(A), "keep_dynamic": True}, state(A, B), True, [f"ip addr del {B} dev e0"]),
        (state(A, dynamic=True), state(), True, [f"ip addr add {A} brd + valid_lft 3600 preferred_lft 3600 dev e0"]),
        (state(mtu=1500), state(mtu=9000), False, ["ip link set dev e0 mtu 1500"]),
        (state(up=False), state(), False, ["ip link set dev e0 down"]),
        (state(), state(up=False), False, ["ip link set dev e0 up"]),
        (state(), state(master="bond0"), False, ["ip link set dev e0 nomaster"]),
        (state(master="bond0"), state(), False, ["ip link set dev e0 master bond0"]),
        ({"routes": [ROUTE]}, state(), False, []),
        ({"routes": [ROUTE]}, state(), True, [f"ip -4 route replace {ROUTE}"]),
        ({"routes": [ROUTE6]}, state(), True, [f"ip -6 route replace {ROUTE6}"]),
        ({"routes": []}, {**state(), "routes": [ROUTE]}, True, [f"ip -4 route del {ROUTE}"]),
    ],
)
def test_corrections(want, seen, add, commands):
    assert [" ".join(command) for command in guard.corrections("e0", want, seen, add)] == commands


@pytest.mark.parametrize(
    ("want", "seen", "by_hand", "left"),
    [
        (state(A), None, True, []),
        (state(A), state(carrier=False), False, []),  # comes with carrier
        (state(A), state(), False, [f"addr add {A} brd + dev e0"]),
        (state(A), state(carrier=False), True, [f"addr add {A} brd + dev e0"]),
        (state(A, up=False), state(up=False), False, []),
    ],
)
def test_lacking(want, seen, by_hand, left):
    assert guard.lacking("e0", want, seen, by_hand) == left


@pytest.mark.parametrize("content", [None, b"text \xff\n"])
def test_a_file_comes_back_byte_for_byte(tmp_path, content):
    file = tmp_path / "folder/file"
    file.parent.mkdir()
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o640)
    kept = json.loads(json.dumps(guard.record(str(file))))
    file.write_bytes(b"other")
    guard.put(kept)
    assert (file.read_bytes() if file.exists() else None) == content
    assert content is None or file.stat().st_mode & 0o777 == 0o640
    assert [path for path in file.parent.iterdir() if path != file] == []


TABS = "echo 'x.yaml:1:2: Invalid YAML: tabs' >&2; echo '  line' >&2; echo ^ >&2; exit 3"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["sh", "-c", "exit 0"], []),
        (["sh", "-c", TABS], [f"sh -c {TABS}: exit 3: x.yaml:1:2: Invalid YAML: tabs"]),
        (["sh", "-c", "exit 3"], ["sh -c exit 3: exit 3: no output"]),
        (["no-such-program"], ["no-such-program: exit -1: [Errno 2] No such file or directory: 'no-such-program'"]),
    ],
)
def test_a_failure_is_one_line(argv, expected):
    assert guard.attempt(argv) == expected


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a change that is armed: its netplan file is new, its one interface as planned."""
    commands = Commands(tmp_path / "bin", monkeypatch)
    commands.links(link("e0", "10.0.0.1/24"))
    for name in ("netplan", "systemctl", "networkctl", "nmcli"):
        commands.script(name, "exit 0")
    monkeypatch.setattr(guard, "GRACE", 0.0)
    monkeypatch.setattr(guard, "SETTLE", 0.3)
    monkeypatch.setattr(guard, "POLL", 0.05)
    monkeypatch.setattr(guard, "GENERATED", (f"{str(tmp_path / 'generated').lstrip('/')}/*",))
    folder = tmp_path / "lib/network-rollback"
    folder.mkdir(parents=True)
    new, gone, boot = tmp_path / "60-ours.yaml", tmp_path / "40-old.yaml", tmp_path / "boot.service"
    gone.write_text("old\n")
    content = {
        "phase": guard.ARMED,
        "files": [guard.record(str(new)), guard.record(str(gone))],
        "generated": [],
        "was_broken": False,
        "links": {"e0": state("10.0.0.1/24")},
        "apply": {"links": {"e0": state("10.0.0.1/24")}, "by_hand": False, "nm_reload": False, "nm_ports": []},
        "boot_files": [str(boot)],
    }
    new.write_text("new\n")
    gone.unlink()
    boot.write_text("unit\n")
    guard.save(folder / guard.STATE, content)
    return commands, folder, new, gone, boot, content


def test_expiry_restores_everything_and_leaves_nothing(machine):
    commands, folder, new, gone, boot, _content = machine
    guard.main(["expire", str(folder)])
    assert not new.exists()
    assert gone.read_text() == "old\n"
    assert not boot.exists()
    assert not folder.exists()
    assert commands.calls("netplan") == ["apply"]
    assert f"--no-block stop {guard.TIMER_UNIT}.timer" in commands.calls("systemctl")
    last = guard.load(folder.parent, guard.LAST)
    assert (last["why"], last["problems"]) == ("it was not confirmed in time", [])
    guard.main(["expire", str(folder)])  # a timer that fires after a rollback finds nothing to do
    assert commands.calls("netplan") == ["apply"]


def test_a_confirmed_change_outlives_its_timer_but_not_a_rollback(machine):
    _commands, folder, new, _gone, _boot, content = machine
    guard.save(folder / guard.STATE, {**content, "phase": guard.CONFIRMED})
    guard.main(["expire", str(folder)])
    assert new.exists()
    assert folder.exists()
    guard.main(["restore", str(folder)])
    assert not new.exists()
    assert guard.load(folder.parent, guard.LAST)["why"] == "it was rolled back"


@pytest.mark.parametrize("was_broken", [False, True])
def test_when_netplan_refuses_what_it_generated_before_comes_back(machine, tmp_path, was_broken):
    commands, folder, _new, _gone, _boot, content = machine
    generated = tmp_path / "generated"
    generated.mkdir()
    (generated / "old.network").write_text("old\n")
    kept = guard.generated()
    (generated / "old.network").write_text("changed\n")
    (generated / "new.network").write_text("new\n")
    guard.save(folder / guard.STATE, {**content, "generated": kept, "was_broken": was_broken})
    commands.script("netplan", "echo 'x.yaml:1:1: Invalid YAML' >&2; exit 78")
    guard.main(["restore", str(folder)])
    assert {path.name: path.read_text() for path in generated.iterdir()} == {"old.network": "old\n"}
    assert commands.calls("networkctl") == ["reload"]
    problems = guard.load(folder.parent, guard.LAST)["problems"]
    assert problems == ([] if was_broken else ["netplan apply: exit 78: x.yaml:1:1: Invalid YAML"])


def test_what_could_not_be_restored_is_said(machine):
    commands, folder, _new, _gone, _boot, content = machine
    unwritable = {
        "path": "/proc/none/file",
        "content": base64.b64encode(b"x").decode(),
        "mode": 0o600,
        "uid": 0,
        "gid": 0,
    }
    guard.save(
        folder / guard.STATE,
        {**content, "files": [*content["files"], unwritable], "links": {"e0": state("10.0.0.9/24")}},
    )
    guard.main(["restore", str(folder)])
    problems = guard.load(folder.parent, guard.LAST)["problems"]
    assert problems[0].startswith("cannot restore /proc/none/file: ")
    assert problems[1:] == [
        "still to do: ip addr del 10.0.0.1/24 dev e0",
        "still to do: ip addr add 10.0.0.9/24 brd + dev e0",
    ]
    assert "addr add 10.0.0.9/24 brd + dev e0" in commands.calls("ip")


def test_apply_leaves_its_outcome(machine):
    commands, folder, *_rest = machine
    guard.main(["apply", str(folder)])
    assert guard.load(folder, guard.OUTCOME) == {"problems": []}
    assert commands.calls("nmcli") == []
    commands.script("netplan", "echo 'Error: boom' >&2; exit 1")
    guard.main(["apply", str(folder)])
    assert guard.load(folder, guard.OUTCOME) == {"problems": ["netplan apply: exit 1: Error: boom"]}
    (folder / guard.STATE).unlink()
    guard.main(["apply", str(folder)])  # rolled back in the meantime


def test_apply_gives_network_manager_a_push(machine):
    commands, folder, _new, _gone, _boot, content = machine
    job = {"links": {"e0": state("10.0.0.2/24")}, "by_hand": False, "nm_reload": True, "nm_ports": ["e0"]}
    guard.save(folder / guard.STATE, {**content, "apply": job})
    guard.main(["apply", str(folder)])
    assert commands.calls("nmcli")[:2] == ["connection reload", "--wait 5 connection up netplan-e0"]
    (problem, *_others) = guard.load(folder, guard.OUTCOME)["problems"]
    assert problem.startswith("still to do: ip addr del 10.0.0.1/24")


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_state_that_was_not_written_to_its_end_is_none(tmp_path, text):
    (tmp_path / guard.STATE).write_text(text)
    assert guard.load(tmp_path) is None


def test_it_runs_as_a_copy(machine, tmp_path):
    """As the units start it: a lone file, by its path."""
    _commands, folder, new, *_rest = machine
    copy = tmp_path / "guard.py"
    copy.write_text(Path(guard.__file__).read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-I", str(copy), "expire", str(folder)], env=dict(os.environ), timeout=60, check=False
    )
    assert done.returncode == 0
    assert not new.exists()
