# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list ``legs`` of a topology file: its entries, and which leg of the plan each of them means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from . import values
from .addresses import Cable, cables
from .draft import Draft, LegDraft
from .model import LEG_PREFIX, RAILS, LegOverride, Shape
from .values import Problems, show

_KEYS = ("between", "rail", "subnet", "addresses")
_END = re.compile(r"(?P<name>[^:]+)(?::(?P<port>[01]))?")


def leg_drafts(problems: Problems, data: Mapping[object, object]) -> tuple[LegDraft, ...]:
    """Check the entries one by one."""
    entries = data.get("legs", [])
    if not isinstance(entries, list):
        problems.add("legs", show(entries), "a list of legs, each with between, rail and subnet or addresses")
        return ()
    drafts = (_draft(problems, f"legs[{index}]", entry) for index, entry in enumerate(entries))
    return tuple(draft for draft in drafts if draft is not None)


def _draft(problems: Problems, key: str, entry: object) -> LegDraft | None:
    if not isinstance(entry, Mapping):
        problems.add(key, show(entry), "a mapping with between, rail and subnet or addresses")
        return None
    values.known_keys(problems, key, entry, _KEYS)
    if "subnet" not in entry and "addresses" not in entry:
        problems.add(
            key, "neither subnet nor addresses", "one or both; remove the entry to keep the leg as it is planned"
        )
    subnet = _subnet(problems, f"{key}.subnet", entry["subnet"]) if "subnet" in entry else None
    addresses = _addresses(problems, f"{key}.addresses", entry.get("addresses", {}))
    return LegDraft(
        key=key,
        between=_between(problems, f"{key}.between", entry["between"]) if "between" in entry else (),
        rail=values.whole_number(problems, f"{key}.rail", entry.get("rail"), RAILS[0], RAILS[-1]),
        subnet=subnet,
        addresses={} if "subnet" in entry and subnet is None else addresses,  # not to be judged by another subnet
    )


def _between(problems: Problems, key: str, value: object) -> tuple[tuple[str, int | None], ...] | None:
    ends = value if isinstance(value, list) else []
    found = [_END.fullmatch(end) if isinstance(end, str) else None for end in ends]
    named = [end for end in found if end is not None]
    if len(named) != 2 or len(found) != 2:
        text = f"[{', '.join(map(str, ends))}]" if ends else show(value)
        problems.add(
            key, text, "the two nodes of the cable, such as [spark1, spark2] or [spark1:0, spark2:1] with ports"
        )
        return None
    return tuple((end["name"], int(end["port"]) if end["port"] else None) for end in named)


def _subnet(problems: Problems, key: str, value: object) -> IPv4Network | None:
    network = values.ipv4_network(problems, key, value)
    if network is not None and network.prefixlen != LEG_PREFIX:
        allowed = f"a /{LEG_PREFIX}, which NCCL's subnet-aware routing compares (NCCL_IB_SUBNET_PREFIX_LEN)"
        problems.add(key, show(value), allowed)
        return None
    return network


def _addresses(problems: Problems, key: str, value: object) -> dict[str, IPv4Address]:
    if not isinstance(value, Mapping):
        problems.add(key, show(value), "a mapping of node names to IPv4 addresses")
        return {}
    found = {str(name): values.ipv4_address(problems, f"{key}.{name}", text) for name, text in value.items()}
    return {name: address for name, address in found.items() if address is not None}


def resolve(
    problems: Problems, shape: Shape, nodes: Sequence[Draft], drafts: Sequence[LegDraft]
) -> dict[int, LegOverride]:
    """Leg index -> what the file says of it. nodes: all of them, in cable order, each with a name of its own."""
    plan = cables(shape, [node.port for node in nodes])
    names = [node.name or "" for node in nodes]
    overrides: dict[int, LegOverride] = {}
    for draft in drafts:
        cable = _cable(problems, shape, plan, names, draft)
        if cable is None or draft.rail is None:
            continue
        index = len(RAILS) * cable + draft.rail
        if index in overrides:
            found = f"{leg_label(shape, plan, names, index)}, which {overrides[index].key} has already"
            problems.add(draft.key, found, "one entry a leg")
            continue
        ranks = [rank for rank, _port in plan[cable]]
        overrides[index] = LegOverride(draft.key, draft.subnet, _by_rank(problems, draft, names, ranks))
    return overrides


def leg_label(shape: Shape, plan: Sequence[Cable], names: Sequence[str], index: int) -> str:
    """A leg for a person: ``rail 0 of spark1:0 - spark2:1``."""
    cable, rail = divmod(index, len(RAILS))
    return f"rail {rail} of {'the switch' if shape == 'switch' else cable_label(plan[cable], names)}"


def cable_label(cable: Cable, names: Sequence[str]) -> str:
    return " - ".join(f"{names[rank]}:{port}" for rank, port in cable)


def _cable(
    problems: Problems, shape: Shape, plan: Sequence[Cable], names: Sequence[str], draft: LegDraft
) -> int | None:
    """The number of the cable that an entry names."""
    key = f"{draft.key}.between"
    if draft.between is None:
        return None
    if shape == "switch":
        if draft.between:
            problems.add(
                key, "two nodes", "no between in shape switch, where a rail is one leg of all nodes; remove it"
            )
        return 0
    if not draft.between:
        if shape == "ring":
            problems.add(key, "nothing", "the two nodes of the cable, such as [spark1, spark2]")
            return None
        return 0
    unknown = [name for name, _port in draft.between if name not in names]
    for name in unknown:
        problems.add(key, f"'{name}', which is no node of this file", values.nearest(name, names))
    return None if unknown else _joining(problems, key, plan, names, draft.between)


def _joining(
    problems: Problems, key: str, plan: Sequence[Cable], names: Sequence[str], between: Sequence[tuple[str, int | None]]
) -> int | None:
    """The one cable that joins two known nodes."""
    given = " and ".join(name if port is None else f"{name}:{port}" for name, port in between)
    joining = [cable for cable in plan if {names[rank] for rank, _port in cable} == {name for name, _port in between}]
    fitting = [cable for cable in joining if all(_fits(cable, names, end) for end in between)]
    if len(fitting) == 1:
        return plan.index(fitting[0])
    if fitting:
        labels = ", ".join(f"[{cable_label(cable, names).replace(' - ', ', ')}]" for cable in fitting)
        problems.add(key, f"{given}, which two cables join", f"the ports too: one of {labels}")
    else:
        labels = ", ".join(cable_label(cable, names) for cable in joining or plan)
        problems.add(key, f"{given}, which no cable of the plan joins", f"a cable of the plan: {labels}")
    return None


def _fits(cable: Cable, names: Sequence[str], end: tuple[str, int | None]) -> bool:
    name, port = end
    return any(names[rank] == name and port in (None, number) for rank, number in cable)


def _by_rank(problems: Problems, draft: LegDraft, names: Sequence[str], ranks: Sequence[int]) -> dict[int, IPv4Address]:
    ends = {names[rank]: rank for rank in ranks}
    for name in draft.addresses:
        if name not in ends:
            key = f"{draft.key}.addresses.{name}"
            problems.add(key, "a node that is not on this leg", f"one of {', '.join(ends)}")
    return {ends[name]: address for name, address in draft.addresses.items() if name in ends}
