# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a topology file that look at several values together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

from .draft import Draft, LegDraft, Settings
from .legcheck import plan_legs, supernet_used
from .model import LegOverride, PortPairs
from .values import Problems

Range = tuple[str, IPv4Network]  # place in the file, what stands there


def cross_check(
    problems: Problems, settings: Settings, drafts: tuple[Draft, ...], legs: Sequence[LegDraft]
) -> dict[int, LegOverride]:
    """Note what contradicts something else; values that were refused already are left out. Gives overrides by leg index."""
    _unique(problems, "name", [(draft.key, draft.name.lower() if draft.name else None) for draft in drafts])
    addresses = [(draft.key, str(draft.address) if draft.address else None) for draft in drafts]
    _unique(problems, "management_address", addresses)
    _unique_devices(problems, settings, drafts)
    _management_interface(problems, settings, drafts)
    own = plan_legs(problems, settings, drafts, legs)
    shared = [settings.supernet] if settings.supernet and supernet_used(settings, len(drafts), own) else []
    ranges = [("supernet", network) for network in shared]
    ranges += [(f"{leg.key}.subnet", leg.subnet) for leg in legs if leg.subnet is not None]
    _management_networks(problems, settings, drafts, ranges)
    return own


def _unique(problems: Problems, name: str, values: Iterable[tuple[str, str | None]]) -> None:
    first: dict[str, str] = {}
    for key, value in values:
        if value is None:
            continue
        if value in first:
            problems.add(f"{key}.{name}", f"'{value}', which {first[value]} has already", "a value of its own")
        first.setdefault(value, key)


def _unique_devices(problems: Problems, settings: Settings, drafts: tuple[Draft, ...]) -> None:
    # What comes from the top level of the file is reported there, once. RDMA names derived from netdevs repeat with them.
    if _repeats(problems, "netdevs", settings.netdevs) or _repeats(problems, "rdma_devices", settings.rdma_devices):
        return
    for draft in drafts:
        if not _repeats(problems, f"{draft.key}.netdevs", draft.netdevs):
            _repeats(problems, f"{draft.key}.rdma_devices", draft.rdma_devices)


def _repeats(problems: Problems, key: str, pairs: PortPairs) -> bool:
    names = [name for port in sorted(pairs) for name in pairs[port]]
    repeated = sorted({name for name in names if names.count(name) > 1})
    for name in repeated:
        found = f"'{name}' {names.count(name)} times in one node"
        problems.add(key, found, "a name for each rail of each port, all different")
    return bool(repeated)


def _management_interface(problems: Problems, settings: Settings, drafts: tuple[Draft, ...]) -> None:
    for draft in drafts:
        fabric = [name for port in draft.used_ports for name in draft.netdevs[port]]
        if settings.management_interface in fabric:
            found = f"'{settings.management_interface}', which is a fabric netdev of {draft.key}"
            problems.add("management_interface", found, "an interface outside the fabric, such as enP7s7")
            return


def _management_networks(
    problems: Problems, settings: Settings, drafts: tuple[Draft, ...], ranges: Sequence[Range]
) -> None:
    if settings.management_prefix is None:
        return
    seen: set[IPv4Network] = set()
    for draft in drafts:
        if draft.address is None:
            continue
        network = IPv4Network((draft.address, settings.management_prefix), strict=False)
        if network.num_addresses > 2 and draft.address in (network.network_address, network.broadcast_address):
            found = f"'{draft.address}', the network or broadcast address of {network}"
            problems.add(
                f"{draft.key}.management_address",
                found,
                f"a host address in {network}; management_prefix sets its size",
            )
        for key, planned in ranges if network not in seen else ():
            if planned.overlaps(network):
                found = f"'{planned}', which overlaps the management network {network} of {draft.key}"
                problems.add(
                    key, found, "a range apart from it; management_prefix sets the size of the management network"
                )
        seen.add(network)
