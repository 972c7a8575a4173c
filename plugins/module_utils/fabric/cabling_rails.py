# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cable between the right ports, looked at rail by rail and direction by direction. Pure.

On the hardware both rails share the wire and each netdev hears both of the other end, so rails count as crossed only where a netdev
hears the other rail and not its own.
"""

from __future__ import annotations

from .cabling_picture import RAILS, Cable, End, Picture, Place
from .cabling_words import Finding, both

_Way = tuple[Place, Place]  # receiver, sender


def rail_findings(seen: Picture, cable: Cable) -> list[Finding]:
    one, two = sorted(cable)
    findings = [_absent(seen, place) for end in (one, two) for place in _absent_rails(seen, end)]
    ways = [(Place(a, rail), Place(b, rail)) for a, b in ((one, two), (two, one)) for rail in RAILS]
    ways = [way for way in ways if all(_probed(seen, place) for place in way)]
    lost = [way for way in ways if way not in seen.hears]
    crossed = [way for way in lost if (way[0], Place(way[1].end, 1 - way[1].rail)) in seen.hears]
    if crossed:
        findings.append(_crossed(seen, (one, two), crossed))
    silent = [way for way in lost if way not in crossed]
    dead = [
        rail
        for rail in RAILS
        if {(Place(one, rail), Place(two, rail)), (Place(two, rail), Place(one, rail))} <= set(silent)
    ]
    findings += [_rail_silent(seen, one, two, rail) for rail in dead]
    for receiver, sender in ((one, two), (two, one)):
        deaf = [way for way in silent if way[0].end == receiver and way[0].rail not in dead]
        if deaf:
            whole = len(deaf) == len([way for way in ways if way[0].end == receiver])
            findings.append(_one_way(seen, receiver, sender, deaf, whole))
    return findings


def _probed(seen: Picture, place: Place) -> bool:
    netdev = seen.netdevs.get(place)
    return netdev is not None and netdev.probed


def _absent_rails(seen: Picture, end: End) -> list[Place]:
    return [
        Place(end, rail)
        for rail in RAILS
        if (netdev := seen.netdevs.get(Place(end, rail))) is None or not netdev.present
    ]


def _absent(seen: Picture, place: Place) -> Finding:
    return Finding(
        "rail_absent",
        (place.end,),
        f"{seen.name(place)} does not exist, and the other rail of the port does",
        f"both rails of {place.end}",
        f"see that both PCIe functions of {place.end} have the driver mlx5_core ('lspci -k'); where the machine names the netdev "
        "otherwise, set netdevs in the topology file",
    )


def _crossed(seen: Picture, ends: tuple[End, End], crossed: list[_Way]) -> Finding:
    found = "; ".join(
        f"{seen.name(receiver)} hears {seen.name(Place(sender.end, 1 - sender.rail))}" for receiver, sender in crossed
    )
    return Finding(
        "crossed_rails",
        ends,
        found,
        f"rail 0 of {ends[0]} on rail 0 of {ends[1]}, rail 1 on rail 1",
        f"exchange the two netdevs of {both(ends)} at the end whose names are exchanged: a rule in /etc/systemd/network or "
        "/etc/udev/rules.d that renames them, or netdevs in the topology file",
    )


def _rail_silent(seen: Picture, one: End, two: End, rail: int) -> Finding:
    places = (Place(one, rail), Place(two, rail))
    carriers = [place for place in places if not seen.netdevs[place].carrier]
    state = f"; {both(map(seen.name, carriers))} without carrier" if carriers else ""
    return Finding(
        "rail_silent",
        (one, two),
        f"{seen.name(places[0])} and {seen.name(places[1])} do not hear each other{state}, and the other rail works",
        f"both rails of the cable from {one} to {two}",
        f"seat the cable at both ends, then restart {both((one.node, two.node))} one after the other",
    )


def _one_way(seen: Picture, receiver: End, sender: End, deaf: list[_Way], whole: bool) -> Finding:
    rails = "" if whole else f" on {both(seen.name(way[0]) for way in deaf)}"
    return Finding(
        "one_way",
        (receiver, sender),
        f"{receiver} hears nothing from {sender}{rails}, and {sender} hears {receiver}",
        f"{receiver} and {sender} hearing each other",
        f"seat the cable at both ends, try another one, then look for a filter on {receiver.node} that drops EtherType 0x88B5 "
        "(nft, tc, XDP)",
    )
