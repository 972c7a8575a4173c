# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the planned legs of a topology file: room in the supernet, subnets apart from each other, addresses in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from .addresses import Cable, address_of, cables, leg_count, subnet_of
from .draft import Draft, LegDraft, Settings
from .model import LEG_PREFIX, RAILS, LegOverride, Shape
from .overrides import leg_label, resolve
from .values import Problems


@dataclass(frozen=True)
class _Legs:
    """All legs as far as the file is right. names: by rank. subnets: by leg index. own: the file's overrides."""

    shape: Shape
    cables: tuple[Cable, ...]
    names: tuple[str, ...]
    subnets: Mapping[int, IPv4Network]
    own: Mapping[int, LegOverride]

    def origin(self, index: int) -> str:
        """The leg, and where its subnet comes from."""
        source = self.own[index].key if self.explicit(index) else "from supernet"
        return f"{leg_label(self.shape, self.cables, self.names, index)} ({source})"

    def explicit(self, index: int) -> bool:
        return index in self.own and self.own[index].subnet is not None


def plan_legs(
    problems: Problems, settings: Settings, drafts: tuple[Draft, ...], leg_drafts: Sequence[LegDraft]
) -> dict[int, LegOverride]:
    """The overrides by leg index, after every check that needs the whole plan. Needs nodes with names of their own."""
    shape, supernet = settings.shape, settings.supernet
    if shape is None or not drafts:
        return {}
    names = [draft.name for draft in drafts if draft.name]
    known = len({name.lower() for name in names}) == len(drafts)
    own = resolve(problems, shape, drafts, leg_drafts) if known else {}
    if supernet is None:
        return own
    _room(problems, shape, len(drafts), supernet, own)
    subnets = {index: subnet_of(supernet, own, index) for index in range(leg_count(shape, len(drafts)))}
    ports = [draft.port for draft in drafts]
    _check(problems, _Legs(shape, cables(shape, ports), tuple(names), subnets, own))
    return own


def supernet_used(settings: Settings, size: int, own: Mapping[int, LegOverride]) -> bool:
    """Whether any leg takes its subnet from the supernet."""
    return settings.shape is None or bool(_supernet_legs(settings.shape, size, own))


def _supernet_legs(shape: Shape, size: int, own: Mapping[int, LegOverride]) -> list[int]:
    return [index for index in range(leg_count(shape, size)) if index not in own or own[index].subnet is None]


def _room(problems: Problems, shape: Shape, size: int, supernet: IPv4Network, own: Mapping[int, LegOverride]) -> None:
    """Legs keep their place in the supernet, whatever the others have."""
    shared = _supernet_legs(shape, size, own)
    needed = shared[-1] + 1 if shared else 0
    held = (1 << LEG_PREFIX - supernet.prefixlen) if supernet.prefixlen <= LEG_PREFIX else 0
    if held < needed:
        widest = LEG_PREFIX - (needed - 1).bit_length()
        found = f"'{supernet}', which holds {held} networks of /{LEG_PREFIX}"
        allowed = f"a /{widest} or wider: the {needed} legs of this {shape} need a /{LEG_PREFIX} each"
        problems.add("supernet", found, allowed)


def _check(problems: Problems, planned: _Legs) -> None:
    for index, override in planned.own.items():
        ranks = [rank for rank, _port in planned.cables[index // len(RAILS)]]
        subnet = planned.subnets[index]
        _apart(problems, planned, index)
        _inside(problems, override, subnet, planned.names)
        _distinct(problems, override, {planned.names[rank]: address_of(subnet, override, rank) for rank in ranks})


def _apart(problems: Problems, planned: _Legs, index: int) -> None:
    """Two legs in one subnet: a node with both would send by either of them. Told at the later entry of the file."""
    if not planned.explicit(index):
        return
    entries = list(planned.own)
    for other, subnet in planned.subnets.items():
        later = planned.explicit(other) and entries.index(other) > entries.index(index)
        if other != index and not later and subnet.overlaps(planned.subnets[index]):
            found = f"'{planned.subnets[index]}', which {planned.origin(other)} has too"
            problems.add(f"{planned.own[index].key}.subnet", found, "a subnet for each leg")


def _inside(problems: Problems, override: LegOverride, subnet: IPv4Network, names: Sequence[str]) -> None:
    for rank, address in override.addresses.items():
        if address in subnet and address not in (subnet.network_address, subnet.broadcast_address):
            continue
        what = "the network or broadcast address of" if address in subnet else "which is outside of"
        key = f"{override.key}.addresses.{names[rank]}"
        problems.add(key, f"'{address}', {what} the leg's subnet {subnet}", f"a host address of {subnet}")


def _distinct(problems: Problems, override: LegOverride, addresses: Mapping[str, IPv4Address]) -> None:
    first: dict[IPv4Address, str] = {}
    for name, address in addresses.items():
        if address in first:
            found = f"'{address}' for {first[address]} and for {name}"
            problems.add(f"{override.key}.addresses", found, "an address for each node of the leg")
        first.setdefault(address, name)
