from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.settings import (
    Places,
    State,
    Wanted,
    decide,
)
from ansible_collections.gb10.ring.plugins.module_utils.memory.settings_checks import checks
from ansible_collections.gb10.ring.plugins.module_utils.memory.swap import Swap, UnitFile
from ansible_collections.gb10.ring.plugins.module_utils.memory.sysctl import ConfigFile, render

PLACES = Places()
WANTED = Wanted({"vm.overcommit_memory": "0", "vm.swappiness": "10"})
FILE = render(WANTED.sysctls)
SWAP = Swap("/swap.img", "file", 16777212, 2048)

FRESH = State(
    values={"vm.overcommit_memory": "0", "vm.swappiness": "60"},
    swaps=(SWAP,),
    available_kib=100_000_000,
    fstab="UUID=aa / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n",
    units=(UnitFile("dev-zram0.swap", "/run/systemd/generator/dev-zram0.swap", "[Swap]\n", own=False),),
)
DONE = State(
    values=dict(WANTED.sysctls),
    files={PLACES.sysctl_file: FILE},
    available_kib=100_000_000,
    fstab="UUID=aa / ext4 defaults 0 1\n# gb10.ring: /swap.img none swap sw 0 0\n",
    units=FRESH.units,
    masked=("dev-zram0.swap",),
)


def test_a_fresh_machine_shows_every_step_in_order():
    plan = decide(FRESH, WANTED, PLACES).plan
    assert [(change.what, change.before, change.after) for change in plan.changes] == [
        ("vm.swappiness", "60", "10"),
        ("/etc/sysctl.d/90-gb10-ring.conf", "", FILE),
        ("/etc/systemd/system/dev-zram0.swap", "", "link to /dev/null (masked)"),
        ("/etc/fstab", FRESH.fstab, DONE.fstab),
        ("/proc/swaps", "/swap.img (file, 16777212 KiB, 2048 KiB used)", ""),
    ]


def test_a_finished_machine_needs_nothing():
    planned = decide(DONE, WANTED, PLACES)
    assert not planned.plan.changed
    assert planned.problems == ()
    assert all(check.ok for check in checks("spark1", DONE, WANTED, PLACES))


@pytest.mark.parametrize(
    ("state", "wanted", "what"),
    [
        (replace(DONE, swaps=(SWAP,)), WANTED, ["/proc/swaps"]),
        (replace(DONE, fstab=FRESH.fstab), WANTED, ["/etc/fstab"]),
        (replace(DONE, masked=()), WANTED, ["/etc/systemd/system/dev-zram0.swap"]),
        (replace(DONE, files={}), WANTED, ["/etc/sysctl.d/90-gb10-ring.conf"]),
        (DONE, Wanted({}), ["/etc/sysctl.d/90-gb10-ring.conf"]),
        (replace(DONE, values={**DONE.values, "vm.swappiness": "0"}), WANTED, ["vm.swappiness"]),
        (FRESH, Wanted(WANTED.sysctls, swap_off=False), ["vm.swappiness", "/etc/sysctl.d/90-gb10-ring.conf"]),
        (replace(DONE, files={}, values={}), Wanted({}, swap_off=False), []),
    ],
)
def test_only_what_differs_changes(state, wanted, what):
    assert [change.what for change in decide(state, wanted, PLACES).plan.changes] == what


def test_dropping_every_setting_removes_the_file():
    (change,) = decide(DONE, Wanted({}), PLACES).files
    assert (change.what, change.after) == (PLACES.sysctl_file, "")


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (replace(FRESH, available_kib=1024), ["swapoff refused: 2048 KiB are swapped out and 1024 KiB are available"]),
        (replace(FRESH, values={"vm.swappiness": "60"}), ["vm.overcommit_memory: this kernel has no such setting"]),
        (
            replace(FRESH, values={"vm.swappiness": None, "vm.overcommit_memory": "0"}, available_kib=0),
            ["vm.swappiness: this kernel has no such setting", "swapoff refused"],
        ),
    ],
)
def test_problems_are_collected(state, problems):
    found = decide(state, WANTED, PLACES).problems
    assert len(found) == len(problems)
    assert all(text.startswith(start) for text, start in zip(found, problems, strict=True))


def test_swap_that_is_not_managed_is_never_refused():
    assert decide(replace(FRESH, available_kib=0), replace(WANTED, swap_off=False), PLACES).problems == ()


@pytest.mark.parametrize(
    ("state", "wanted", "bad"),
    [
        (
            FRESH,
            WANTED,
            {
                "memory.swap": "error",
                "memory.swap_boot": "error",
                "memory.sysctl": "error",
                "memory.persisted": "error",
            },
        ),
        (replace(DONE, fstab=FRESH.fstab), WANTED, {"memory.swap_boot": "error"}),
        (replace(DONE, masked=()), WANTED, {"memory.swap_boot": "error"}),
        (replace(DONE, swaps=(SWAP,)), WANTED, {"memory.swap": "error"}),
        (
            replace(DONE, values={}),
            Wanted({"vm.swappiness": "10"}),
            {"memory.sysctl": "error", "memory.persisted": "error"},
        ),
        (replace(FRESH, files={PLACES.sysctl_file: FILE}, values=WANTED.sysctls), replace(WANTED, swap_off=False), {}),
        (
            replace(DONE, config_files=(ConfigFile("/etc/sysctl.d/99-x.conf", 0, "\nvm.swappiness = 60\n"),)),
            WANTED,
            {"memory.foreign": "warning"},
        ),
    ],
)
def test_checks(state, wanted, bad):
    found = checks("spark1", state, wanted, PLACES)
    assert {check.id: check.severity for check in found if not check.ok} == bad
    assert all(check.node == "spark1" and check.cure and check.found and check.expected for check in found)


def test_a_check_each_setting_names_it():
    found = [check for check in checks("spark1", FRESH, WANTED, PLACES) if check.id == "memory.sysctl"]
    assert [(check.ok, check.found, check.expected) for check in found] == [
        (True, "vm.overcommit_memory = 0", "vm.overcommit_memory = 0"),
        (False, "vm.swappiness = 60", "vm.swappiness = 10"),
    ]


def test_the_swap_check_says_why_swapoff_would_be_refused():
    check = next(check for check in checks("spark1", replace(FRESH, available_kib=48), WANTED, PLACES))
    assert "2000 KiB too few" in check.cure


def test_the_foreign_check_says_where():
    state = replace(DONE, config_files=(ConfigFile("/etc/sysctl.d/99-x.conf", 0, "\nvm.swappiness = 60\n"),))
    check = checks("spark1", state, WANTED, PLACES)[-1]
    assert check.found == "/etc/sysctl.d/99-x.conf:2: vm.swappiness = 60"
    assert "Take line 2 out of /etc/sysctl.d/99-x.conf" in check.cure
