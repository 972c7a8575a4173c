# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a topology file that look at several values together."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network

from .addresses import leg_count
from .draft import Draft, Settings
from .model import LEG_PREFIX, PortPairs
from .values import Problems


def cross_check(problems: Problems, settings: Settings, drafts: tuple[Draft, ...]) -> None:
    """Note what contradicts something else; values that were refused already are left out."""
    _unique(problems, "name", [(draft.key, draft.name.lower() if draft.name else None) for draft in drafts])
    addresses = [(draft.key, str(draft.address) if draft.address else None) for draft in drafts]
    _unique(problems, "management_address", addresses)
    _unique_devices(problems, settings, drafts)
    _management_interface(problems, settings, drafts)
    _room(problems, settings, len(drafts))
    _management_networks(problems, settings, drafts)


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


def _room(problems: Problems, settings: Settings, size: int) -> None:
    if settings.supernet is None or settings.shape is None or not size:
        return
    needed = leg_count(settings.shape, size)
    held = (1 << LEG_PREFIX - settings.supernet.prefixlen) if settings.supernet.prefixlen <= LEG_PREFIX else 0
    if held < needed:
        widest = LEG_PREFIX - (needed - 1).bit_length()
        found = f"'{settings.supernet}', which holds {held} networks of /{LEG_PREFIX}"
        problems.add(
            "supernet",
            found,
            f"a /{widest} or wider: the {needed} legs of this {settings.shape} need a /{LEG_PREFIX} each",
        )


def _management_networks(problems: Problems, settings: Settings, drafts: tuple[Draft, ...]) -> None:
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
        if settings.supernet is not None and network not in seen and settings.supernet.overlaps(network):
            found = f"'{settings.supernet}', which overlaps the management network {network} of {draft.key}"
            problems.add(
                "supernet", found, "a range apart from it; management_prefix sets the size of the management network"
            )
        seen.add(network)
