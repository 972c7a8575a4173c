# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change consists of, for every state of a machine, and the way back from it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric import before, netplan, netplan_yaml
from ansible_collections.gb10.ring.plugins.module_utils.fabric.change import Machine, Wish, plan_change
from ansible_collections.gb10.ring.plugins.module_utils.fabric.foreign import Netdev
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan import Managers, Refusal, render
from ansible_collections.gb10.ring.plugins.module_utils.fabric.ports import parse_ports
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_change import state
from ansible_collections.gb10.ring.tests.unit.fixtures.fabric_ports import PORTS

OURS = "/etc/netplan/60-gb10-ring.yaml"
CX7 = "/etc/netplan/40-cx7.yaml"
KEYFILE = "/etc/NetworkManager/system-connections/cx7.nmconnection"
PORT_LIST = parse_ports(PORTS[:2], 9000)
FIRST, SECOND = (port.netdev for port in PORT_LIST)
MAC = "4c:bb:47:01:00:00"
TEXT = render(PORT_LIST, 9000)
FRESH = {FIRST: state(up=False, carrier=False, mtu=1500), SECOND: state(up=False, carrier=False, mtu=1500)}
DONE = {port.netdev: state(port.cidr) for port in PORT_LIST}
OLD = f"network:\n  version: 2\n  ethernets:\n    {FIRST}: {{addresses: [192.168.0.1/24]}}\n"
WISH = Wish("spark1", PORT_LIST, 9000, OURS)


def machine(files=None, links=None, **others) -> Machine:
    held = files or {}
    return Machine(
        files=held,
        stats={path: (0o600, 0, 0) for path in held},
        links=FRESH if links is None else links,
        netdevs=(Netdev(FIRST, (MAC,)), Netdev(SECOND), Netdev("enP7s7")),
        **others,
    )


def accept(_files):
    return None


def refuse(_files):
    return Refusal("", "", "no output")


def tabs(*broken):
    """A netplan that refuses these files when they are there, the first one first."""

    def judge(files):
        return next((Refusal(path, "3", "tabs") for path in broken if path in files), None)

    return judge


def bad(planned) -> list[str]:
    return [check.id for check in planned.checks if not check.ok]


def written(planned) -> dict[str, str | None]:
    return {edit.path: edit.text for edit in planned.edits}


def after(planned, old: Machine, links=None) -> Machine:
    """The machine once the plan is applied."""
    files, originals = dict(old.files), dict(old.originals)
    for edit in planned.edits:
        store = originals if edit.path.startswith(before.FOLDER) else files
        store.pop(edit.path, None)
        if edit.text is not None:
            store[edit.path] = edit.text
    files = {path: text for path, text in files.items() if not path.endswith("ring") or path == OURS}
    return replace(
        old, files=files, stats={path: (0o600, 0, 0) for path in files}, links=links or DONE, originals=originals
    )


@pytest.mark.parametrize(
    ("given", "changed", "activate"),
    [
        (machine(), [OURS, FIRST, SECOND], True),
        (machine(links={}), [OURS], True),
        (machine({OURS: TEXT}, DONE), [], False),
        (machine({OURS: "network: {}\n"}, DONE), [OURS], True),
        (machine({OURS: TEXT}, {**DONE, FIRST: state(PORT_LIST[0].cidr, mtu=1500)}), [FIRST], True),
        (
            replace(machine({OURS: TEXT}, DONE), stats={OURS: (0o644, 0, 0)}),
            [OURS],
            False,
        ),  # no reason to touch the network
    ],
)
def test_own_file_and_interfaces(given, changed, activate):
    planned = plan_change(WISH, given, accept)
    assert [change.what for change in planned.plan.changes] == changed
    assert planned.activate is activate
    assert bad(planned) == []
    assert (OURS in written(planned)) is (OURS in changed)
    assert set(planned.wanted) == {FIRST, SECOND}


def test_the_second_plan_is_empty():
    old = machine({CX7: OLD})
    planned = plan_change(replace(WISH, migrate=True), old, accept)
    assert not plan_change(WISH, after(planned, old), accept).plan.changed


def test_the_first_change_keeps_what_was_there():
    old = machine(links={FIRST: state("10.9.9.1/24", mtu=1500), SECOND: state()})
    record = json.loads(written(plan_change(WISH, old, accept))[before.RECORD])
    assert record["links"][FIRST]["addresses"] == [{"cidr": "10.9.9.1/24", "dynamic": False}]
    assert record["files"] == []
    later = after(plan_change(WISH, old, accept), old, {**DONE, FIRST: state()})
    again = json.loads(written(plan_change(WISH, later, accept))[before.RECORD])
    assert again == record


def test_refuse_names_the_foreign_file_and_touches_none():
    planned = plan_change(WISH, machine({CX7: OLD}), accept)
    assert bad(planned) == ["fabric.foreign"]
    assert CX7 not in written(planned)


@pytest.mark.parametrize(
    ("text", "left", "shown"),
    [
        (OLD, None, f"ethernets:\n  {FIRST}:\n    addresses:\n    - 192.168.0.1/24\n"),
        (
            OLD + "    enP7s7: {dhcp4: true}\n",
            f"# gb10.ring took the fabric's ports out of this file; the original: {before.FOLDER}{CX7}\n"
            "network:\n  version: 2\n  ethernets:\n    enP7s7: {dhcp4: true}\n",
            f"ethernets:\n  {FIRST}:\n    addresses:\n    - 192.168.0.1/24\n",
        ),
    ],
)
def test_migrate_takes_the_port_out_and_keeps_the_original(text, left, shown):
    planned = plan_change(replace(WISH, migrate=True), machine({CX7: text}), accept)
    assert bad(planned) == []
    assert written(planned)[CX7] == left
    assert written(planned)[before.FOLDER + CX7] == text
    assert (planned.plan.changes[0].before, planned.plan.changes[0].after) == (shown, "")
    assert not planned.nm_reload


def test_migrate_takes_a_profile_over_and_keeps_its_renderer():
    profile = f"[connection]\nid=cx7\ninterface-name={FIRST}\n[wifi-security]\npsk=geheim\n"
    managers = Managers({FIRST: "connected", SECOND: "disconnected"}, {})
    planned = plan_change(replace(WISH, migrate=True), machine({KEYFILE: profile}, managers=managers), accept)
    assert written(planned)[KEYFILE] is None
    assert planned.nm_reload
    assert planned.nm_ports == (FIRST, SECOND)
    assert written(planned)[OURS].count("renderer: NetworkManager") == 2
    assert "geheim" not in str(planned.plan.diff())


def test_a_definition_that_is_for_others_too_is_refused_even_so():
    files = {CX7: "network: {ethernets: {all: {match: {name: en*}}}}"}
    planned = plan_change(replace(WISH, migrate=True), machine(files), accept)
    assert bad(planned) == ["fabric.foreign"]
    assert CX7 not in written(planned)


def test_broken_files_are_named_or_set_aside():
    files = {"/etc/netplan/1.yaml": "a", "/etc/netplan/2.yaml": "b"}
    judge = tabs(*files)
    assert bad(plan_change(WISH, machine(files), judge)) == ["fabric.netplan"]
    planned = plan_change(replace(WISH, quarantine=True), machine(files), judge)
    assert bad(planned) == []
    assert planned.was_broken
    for path, text in files.items():
        assert written(planned)[path] is None
        assert written(planned)[f"{path}.disabled-by-gb10-ring"] == text
    assert planned.plan.changes[0].before == "line 3: tabs\n"


def test_our_own_file_is_never_set_aside():
    assert bad(plan_change(replace(WISH, quarantine=True), machine(), tabs(OURS))) == ["fabric.netplan"]
    assert bad(plan_change(replace(WISH, quarantine=True), machine(), refuse)) == ["fabric.netplan"]


@pytest.mark.parametrize(
    ("given", "wish", "expected"),
    [
        (machine(serving=("engine",)), WISH, ["fabric.serving"]),
        (machine(serving=("engine",)), replace(WISH, while_serving=True), []),
        (machine({OURS: TEXT}, DONE, serving=("engine",)), WISH, []),  # nothing to change
        (machine(management=(FIRST,)), WISH, ["fabric.management"]),
    ],
)
def test_other_objections(given, wish, expected):
    assert bad(plan_change(wish, given, accept)) == expected


def test_a_port_of_an_earlier_plan_is_released():
    old = machine({OURS: TEXT}, DONE)
    planned = plan_change(replace(WISH, ports=PORT_LIST[:1]), old, accept)
    assert [(change.what, change.why) for change in planned.plan.changes] == [
        (OURS, "differs from the topology"),
        (SECOND, "no longer part of the fabric"),
    ]
    assert (planned.wanted[SECOND]["addresses"], planned.wanted[SECOND]["mtu"]) == ([], 1500)


def test_a_released_port_does_not_wait_for_addresses_that_were_migrated():
    """Nothing gives them any more, so that a change that waited for them would be undone."""
    old = machine({CX7: OLD}, {**FRESH, FIRST: state("192.168.0.1/24", mtu=1500)})
    new = after(plan_change(replace(WISH, migrate=True), old, accept), old)
    planned = plan_change(replace(WISH, ports=PORT_LIST[1:]), new, accept)
    assert (planned.wanted[FIRST]["addresses"], planned.wanted[FIRST]["mtu"]) == ([], 1500)


NAMING = f"""\
network:
  ethernets:
    cx7: {{match: {{macaddress: "{MAC}"}}, set-name: {FIRST}, addresses: [192.168.0.1/24]}}
"""
LINK_FILE = f"[Match]\nPermanentMACAddress={MAC}\n\n[Link]\nName={FIRST}\n"
NAMED = render(PORT_LIST, 9000, namings={FIRST: {"macaddress": MAC}})


@pytest.mark.parametrize("quarantine", [False, True])
def test_a_name_that_goes_with_a_foreign_file_is_given_by_ours(quarantine):
    """Also when netplan does not accept the file any more: what it generated before names the port until the next boot."""
    wish, judge = replace(WISH, migrate=True, quarantine=quarantine), tabs(CX7) if quarantine else accept
    old = machine(
        {CX7: "a" if quarantine else NAMING}, link_files={"/run/systemd/network/10-netplan-cx7.link": LINK_FILE}
    )
    planned = plan_change(wish, old, judge)
    assert bad(planned) == []
    assert (written(planned)[CX7], written(planned)[OURS]) == (None, NAMED)
    new = after(planned, old)
    for link_files in ({}, {"/run/systemd/network/10-netplan-ours.link": LINK_FILE}):
        assert not plan_change(wish, replace(new, link_files=link_files), judge).plan.changed


def test_a_port_that_leaves_the_plan_keeps_its_name():
    old = machine({OURS: NAMED}, DONE)
    wish = replace(WISH, ports=PORT_LIST[1:])
    planned = plan_change(wish, old, accept)
    entries = netplan.own_ports(netplan_yaml.parse(written(planned)[OURS]))
    assert list(entries) == [SECOND, FIRST]
    assert (entries[FIRST]["set-name"], "addresses" in entries[FIRST]) == (FIRST, False)
    assert (planned.wanted[FIRST]["addresses"], planned.wanted[FIRST]["mtu"]) == ([], 1500)
    assert not plan_change(wish, after(planned, old, {**DONE, FIRST: state(mtu=1500)}), accept).plan.changed


ABSENT = replace(WISH, present=False)


def test_absent_is_the_way_back():
    links = {FIRST: {**state("192.168.0.1/24", mtu=1500), "link_local": True}, SECOND: FRESH[SECOND]}
    old = machine({CX7: OLD}, links)
    new = after(plan_change(replace(WISH, migrate=True), old, accept), old)
    planned = plan_change(ABSENT, new, accept)
    back = written(planned)
    assert (back[OURS], back[CX7]) == (None, OLD)
    assert (back[before.RECORD], back[before.FOLDER + CX7]) == (None, None)
    assert [change.what for change in planned.plan.changes] == [OURS, CX7, FIRST, SECOND]
    assert planned.wanted[SECOND]["up"] is False
    assert planned.by_hand
    assert not plan_change(ABSENT, after(planned, new, links), accept).plan.changed


def test_absent_on_a_machine_that_never_was_ours():
    planned = plan_change(ABSENT, machine({CX7: OLD}), accept)
    assert (planned.plan.changed, planned.edits, planned.activate) == (False, (), False)


def test_absent_without_a_record_takes_our_addresses_away():
    planned = plan_change(ABSENT, machine({OURS: TEXT}, {FIRST: state(PORT_LIST[0].cidr, "10.9.9.1/24")}), accept)
    assert planned.wanted[FIRST]["addresses"] == [{"cidr": "10.9.9.1/24", "dynamic": False}]


def test_a_file_that_somebody_changed_since_stays():
    old = machine({CX7: OLD})
    new = after(plan_change(replace(WISH, migrate=True), old, accept), old)
    new = replace(new, files={**new.files, CX7: "network: {}\n"}, stats={**new.stats, CX7: (0o600, 0, 0)})
    planned = plan_change(ABSENT, new, accept)
    assert CX7 not in written(planned)
    assert before.FOLDER + CX7 not in written(planned)  # the original is kept
    assert planned.notes == (f"{CX7} was changed since and stays so; its original is {before.FOLDER}{CX7}",)


def test_a_quarantined_file_stays_aside():
    old = machine({CX7: "a"})
    planned = plan_change(replace(WISH, quarantine=True), old, tabs(CX7))
    new = after(planned, old)
    back = plan_change(ABSENT, new, tabs(CX7))
    assert bad(back) == []
    assert CX7 not in written(back)
    assert back.notes[0].startswith(f"{CX7} stays renamed: netplan does not accept it")


def test_an_original_that_is_gone_is_said():
    old = machine({CX7: OLD})
    new = after(plan_change(replace(WISH, migrate=True), old, accept), old)
    new = replace(new, originals={before.RECORD: new.originals[before.RECORD]})
    assert plan_change(ABSENT, new, accept).notes == (
        f"{CX7} cannot come back: its original {before.FOLDER}{CX7} is gone",
    )
