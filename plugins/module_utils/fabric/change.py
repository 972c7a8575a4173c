# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of the network consists of: files, interfaces, and what speaks against it; pure, netplan's judgement is handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plan import Change, Plan
from ..report.checks import Check
from . import before, netplan, netplan_yaml, objections
from .foreign import Claim, Netdev, claims, effective, profile_claims
from .naming import namings
from .netplan import FILE_MODE, LinkState, Managers, Refusal, drift, wanted_state
from .ports import Port

DISABLED = ".disabled-by-gb10-ring"
_EDITED = "# gb10.ring took the fabric's ports out of this file; the original: {copy}\n"

Judge = Callable[[Mapping[str, str]], "Refusal | None"]


@dataclass(frozen=True)
class Wish:
    """What is asked for. present: the fabric's file is there, else it goes. node: inventory name, for the checks."""

    node: str
    ports: tuple[Port, ...]
    mtu: int
    path: str
    present: bool = True
    migrate: bool = False
    quarantine: bool = False
    while_serving: bool = False
    renderer: str = ""


@dataclass(frozen=True)
class Machine:
    """What is there.

    files: texts of netplan files and NetworkManager profiles by path; stats: their mode, owner and group. links: all interfaces, as
    guard.look() gives them. management: interfaces that carry the way to this machine. serving: what a change would harm.
    originals: texts of the copies that before.py keeps, by path. link_files: what netplan generated for udev, by path.
    """

    files: Mapping[str, str]
    stats: Mapping[str, tuple[int, int, int]]
    links: Mapping[str, LinkState]
    netdevs: tuple[Netdev, ...] = ()
    managers: Managers = field(default_factory=Managers)
    management: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()
    originals: Mapping[str, str] = field(default_factory=dict)
    link_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def record(self) -> str | None:
        return self.originals.get(before.RECORD)

    def netplan_files(self) -> dict[str, str]:
        return {path: text for path, text in self.files.items() if path.endswith(".yaml")}

    def profiles(self) -> dict[str, str]:
        return {path: text for path, text in self.files.items() if not path.endswith(".yaml")}


@dataclass(frozen=True)
class Edit:
    """A file to write (text) or to remove (None)."""

    path: str
    text: str | None
    mode: int = FILE_MODE
    owner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class NetworkPlan:
    """plan: what a person sees. edits: every file, those that keep what was there among them. wanted: interfaces by name.

    activate: run ``netplan apply``. by_hand: set what the renderer does not bring. was_broken: netplan
    accepts the files of before no more than it does now. notes: what is left as it is, a line each.
    """

    plan: Plan
    edits: tuple[Edit, ...]
    wanted: Mapping[str, LinkState]
    checks: tuple[Check, ...]
    activate: bool
    by_hand: bool = False
    nm_reload: bool = False
    nm_ports: tuple[str, ...] = ()
    was_broken: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class _Draft:
    """Files on their way from what is to what will be."""

    files: dict[str, str]
    changes: list[Change] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    kept: list[before.Kept] = field(default_factory=list)

    def replace(self, path: str, text: str | None, change: Change, machine: Machine, kind: str) -> None:
        """Replace or remove a foreign file, and keep what it was."""
        self.kept.append(before.keep(path, machine.files[path], machine.stats[path], text, kind))
        self.changes.append(change)
        self.edits.append(Edit(path, text))
        self.files.pop(path, None)
        if text is not None:
            self.files[path] = text


def plan_change(wish: Wish, machine: Machine, judge: Judge) -> NetworkPlan:
    """Everything that this call is about. Nothing may be applied while a check of it failed."""
    return _plan_present(wish, machine, judge) if wish.present else _plan_absent(wish, machine, judge)


def _plan_present(wish: Wish, machine: Machine, judge: Judge) -> NetworkPlan:
    known = before.load(machine.record)
    old = netplan.own_ports(netplan_yaml.parse(machine.files.get(wish.path, "")) or {})
    renderers = netplan.choose_renderers(wish.ports, machine.managers, _renderers(old), wish.renderer)
    names = namings(dict.fromkeys([*renderers, *old]), machine.link_files, old, machine.netdevs)
    text = netplan.render(wish.ports, wish.mtu, {**_renderers(old), **renderers}, names)

    draft = _Draft({**machine.netplan_files(), wish.path: text})
    found = _claims(wish, machine)
    if wish.migrate:
        _take_out([claim for claim in found if not claim.blocked], machine, draft)
    broken = _sift(wish, machine, draft, judge)
    own = _own_changes(wish.path, text, machine)
    left = [name for name in old if name not in renderers]
    # Not as recorded: what gave them the addresses of then is migrated.
    released = {name: before.released(before.Known(), name, machine.links.get(name), old[name]) for name in left}
    wanted = {port.netdev: wanted_state(port, wish.mtu) for port in wish.ports}
    links = (
        *drift(wanted, machine.links, "interface differs"),
        *drift(released, machine.links, "no longer part of the fabric"),
    )
    plan = Plan((*draft.changes, *own, *links))
    activate = bool(draft.changes or links or text != machine.files.get(wish.path))
    kept = before.edits(known, draft.kept, _first_states(wish, machine, old)) if plan.changed else {}
    return NetworkPlan(
        plan=plan,
        edits=(
            *(Edit(path, content) for path, content in kept.items()),
            *draft.edits,
            *([Edit(wish.path, text)] if own else []),
        ),
        wanted={**wanted, **{name: state for name, state in released.items() if state}},
        checks=tuple(
            [
                objections.netplan_check(wish.node, wish.path, broken),
                objections.foreign_check(wish.node, found, wish.migrate),
                objections.management_check(wish.node, wish.ports, machine.links, machine.management),
                objections.serving_check(wish.node, machine.serving if activate else (), wish.while_serving),
            ]
        ),
        activate=activate,
        nm_reload=any("/NetworkManager/" in edit.path for edit in draft.edits),
        was_broken=any(kept.kind == before.QUARANTINED for kept in draft.kept),
        nm_ports=tuple(name for name, renderer in renderers.items() if renderer == netplan.NETWORK_MANAGER),
    )


def _renderers(old: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: str(body.get("renderer", "")) for name, body in old.items()}


def _claims(wish: Wish, machine: Machine) -> list[Claim]:
    names = [port.netdev for port in wish.ports]
    paths = [path for path in effective(machine.netplan_files()) if path != wish.path]
    networks = {path: netplan_yaml.parse(machine.files[path]) or {} for path in paths}
    return [
        *claims(networks, names, machine.netdevs, machine.management),
        *profile_claims(machine.profiles(), names, machine.netdevs),
    ]


def _take_out(found: Sequence[Claim], machine: Machine, draft: _Draft) -> None:
    """Take the claims' definitions out of their files."""
    for path in dict.fromkeys(claim.file for claim in found):
        mine = [claim for claim in found if claim.file == path]
        text = machine.files[path]
        if not mine[0].where:
            change = Change(path, f"profile of {', '.join(mine[0].ports)}\n", "", "taken over from NetworkManager")
            draft.replace(path, None, change, machine, before.FOREIGN)
            continue
        header = _EDITED.format(copy=before.copy_path(path))
        left = netplan_yaml.remove(text, [(claim.where, claim.item) for claim in mine], header)
        shown = netplan_yaml.excerpt(netplan_yaml.parse(text) or {}, [claim.where for claim in mine])
        why = "the fabric's ports are taken out" if left else "holds the fabric's ports only, removed"
        draft.replace(path, left, Change(path, shown, "", why), machine, before.FOREIGN)


def _sift(wish: Wish, machine: Machine, draft: _Draft, judge: Judge) -> list[Refusal]:
    """Let netplan judge all files together; with consent, set aside each one that it does not accept. What it still refuses."""
    while (refusal := judge(draft.files)) is not None:
        if not wish.quarantine or refusal.path not in machine.files or refusal.path == wish.path:
            return [refusal]
        aside = refusal.path + DISABLED
        shown = f"line {refusal.line or 'unknown'}: {refusal.what}\n"
        draft.edits.append(Edit(aside, machine.files[refusal.path]))
        change = Change(refusal.path, shown, f"renamed to {aside}\n", "netplan does not accept it")
        draft.replace(refusal.path, None, change, machine, before.QUARANTINED)
    return []


def _own_changes(path: str, text: str, machine: Machine) -> tuple[Change, ...]:
    now = machine.files.get(path)
    if now is None:
        return (Change(path, "", text, "absent"),)
    if now != text:
        return (Change(path, now, text, "differs from the topology"),)
    mode = machine.stats[path][0]
    if mode != FILE_MODE:
        return (Change(path, f"mode {mode:04o}", f"mode {FILE_MODE:04o}", "netplan wants it closed to others"),)
    return ()


def _first_states(wish: Wish, machine: Machine, old: Mapping[str, Any]) -> dict[str, LinkState]:
    """Interfaces that were not ours before this change."""
    names = [port.netdev for port in wish.ports if port.netdev not in old]
    return {name: machine.links[name] for name in names if name in machine.links}


def _plan_absent(wish: Wish, machine: Machine, judge: Judge) -> NetworkPlan:
    known = before.load(machine.record)
    text = machine.files.get(wish.path)
    old = netplan.own_ports(netplan_yaml.parse(text or "") or {})
    draft = _Draft(machine.netplan_files())
    if text is not None:
        draft.files.pop(wish.path)
        draft.changes.append(Change(wish.path, text, "", "removed"))
        draft.edits.append(Edit(wish.path, None))
    returned, notes = before.returns(known, {**machine.files, **machine.originals})
    for kept in returned:
        draft.changes.append(Change(kept.path, "", "as it was before\n", "brought back"))
        draft.edits.append(Edit(kept.path, kept.text, kept.mode, kept.owner))
        if kept.path.endswith(".yaml"):
            draft.files[kept.path] = kept.text
    broken = _sift(wish, machine, draft, judge)
    names = dict.fromkeys([*old, *known.links])
    states = {name: before.released(known, name, machine.links.get(name), old.get(name, {})) for name in names}
    wanted = {name: state for name, state in states.items() if state}
    links = drift(wanted, machine.links, "was so before")
    activate = bool(draft.changes or links)
    forgotten = [Edit(path, None) for path in before.forgotten(known, returned)] if machine.record else []
    return NetworkPlan(
        plan=Plan((*draft.changes, *links)),
        edits=(*draft.edits, *forgotten),
        wanted=wanted,
        checks=(
            objections.netplan_check(wish.node, wish.path, broken),
            objections.serving_check(wish.node, machine.serving if activate else (), wish.while_serving),
        ),
        activate=activate,
        by_hand=True,
        nm_reload=any("/NetworkManager/" in kept.path for kept in returned),
        notes=tuple(notes),
    )
