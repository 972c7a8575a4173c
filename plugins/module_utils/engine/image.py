# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which image the ranks run, which node has it, and how the others come by it without a registry. Values in, values out.

An image is known by its id, a digest over its configuration and through that over every layer, which docker and podman compute
anew when they load it. So a node that has the id has the same bytes, whichever way they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..checkpoint import fanout, units
from ..checkpoint.manifest import File
from ..plan import Change, Plan
from ..report.checks import Check

RUNTIMES = ("docker", "podman")
STEPS = ("keep", "pull", "load", "take", "none")
PORT = 7874
REPOSITORY = "localhost/gb10-ring/engine"
# Bytes on disk for each byte of the image: docker and podman put a stream into a temporary file before they make layers of it,
# and docker writes the layers beside each other before it sends them. A pull has compressed layers beside the unpacked ones.
BRING, GIVE = 2, 1
_ALONE = "sha256:"
_NEEDS = {"pull": ("image",), "load": ("archive", "image_id"), "take": ("sources", "token")}
_ARCHIVE = "an archive that `docker save` or `podman save` wrote, on the head"


@dataclass(frozen=True)
class Wanted:
    """What the profile asks for. reference: NAME@DIGEST or NAME:TAG. assumed_bytes: size of an image that nobody has looked at yet."""

    runtime: str
    reference: str = ""
    image_id: str = ""
    archive: str = ""
    assumed_bytes: int = 0


@dataclass(frozen=True)
class Node:
    """What a node has. images: bytes by id. reference_id: the id that the reference stands for there, empty: none.

    archive_ids: ids of the images in the archive; archive_problem: why there are none. disk_size, disk_available: of the file system
    with the images, in bytes. unit_image: what the node's unit runs, empty when there is none. problem: why nothing is known of it.
    """

    name: str
    place: fanout.Node
    images: Mapping[str, int] = field(default_factory=dict)
    reference_id: str = ""
    archive_ids: tuple[str, ...] = ()
    archive_problem: str = ""
    disk_size: int = 0
    disk_available: int = 0
    unit_image: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Step:
    """What one node does. wave: 1 takes from a node that has the image now, 2 from one of wave 1. sources: addresses, best first."""

    action: str
    wave: int = 0
    sources: tuple[str, ...] = ()
    listen: tuple[Mapping[str, str], ...] = ()
    givers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """image_id: empty until somebody has pulled the reference. size: bytes of the image, 0 when unknown."""

    image_id: str
    size: int
    steps: Mapping[str, Step]
    checks: tuple[Check, ...]

    @property
    def waves(self) -> int:
        return max((step.wave for step in self.steps.values()), default=0)

    @property
    def moved(self) -> bool:
        return any(step.action in ("pull", "load", "take") for step in self.steps.values())


def options_problems(options: Mapping[str, Any]) -> list[str]:
    """What is out of range, one text each."""
    ranges = {
        "port": (1024, 65535),
        "ceiling_percent": (1, 100),
        "stall_timeout_s": (1, 86400),
        "timeout_s": (1, 86400),
    }
    step = options.get("step", "")
    return [
        f"option {name} is {options[name]}, expected an integer from {low} to {high}"
        for name, (low, high) in ranges.items()
        if name in options and not low <= options[name] <= high
    ] + [f"option {name} is missing, step {step} needs it" for name in _NEEDS.get(step, ()) if not options.get(name)]


def nodes_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The nodes in these rows, in order of rank; each row has name, ring_rank, fabric_ports and look, what M(engine_image) returned.

    Raises FanoutError where the inventory lacks something.
    """
    given = {str(row["name"]): row for row in rows}
    places = fanout.nodes_of([{**row, "lacking": ()} for row in given.values()], ())
    return tuple(_node(place, given[place.name].get("look")) for place in places)


def _node(place: fanout.Node, look: Any) -> Node:
    if not isinstance(look, Mapping) or "images" not in look:
        said = look.get("msg") if isinstance(look, Mapping) else ""
        return Node(place.name, place, problem=str(said or "nobody has looked at its images"))
    return Node(
        place.name,
        place,
        images={str(name): int(size) for name, size in look["images"].items()},
        reference_id=str(look.get("reference_id", "")),
        archive_ids=tuple(look.get("archive_ids", ())),
        archive_problem=str(look.get("archive_problem", "")),
        disk_size=int(look["disk"]["size"]),
        disk_available=int(look["disk"]["available"]),
        unit_image=str(look.get("unit_image", "")),
    )


def decide(wanted: Wanted, nodes: Sequence[Node], ceiling_percent: int) -> Decision:
    """Who does what. Checks that fail say why it cannot be done; then nothing should be."""
    blind = [_blind(node) for node in nodes if node.problem]
    image_id, disagreement = target(wanted, nodes)
    if blind or disagreement:
        return Decision(image_id, 0, {node.name: Step("none") for node in nodes}, (*blind, *disagreement))
    size = max((node.images.get(image_id, 0) for node in nodes), default=0)
    holders = [node for node in nodes if image_id and image_id in node.images]
    if holders:
        steps, apart = _spread(nodes, {node.name for node in holders})
        checks = [_apart(name, nodes, image_id) for name in apart]
    else:
        steps, checks = _origin(wanted, nodes, image_id)
    counted = size or wanted.assumed_bytes
    budget = [_budget(node, steps, counted, ceiling_percent) for node in nodes]
    return Decision(image_id, size, steps, (*checks, *(check for check in budget if check)))


def target(wanted: Wanted, nodes: Sequence[Node]) -> tuple[str, list[Check]]:
    """The id that all nodes are to have, empty while nobody knows it; and what is wrong where nodes know different ones."""
    if wanted.image_id:
        return wanted.image_id, []
    known = {node.name: node.reference_id for node in nodes if node.reference_id}
    if not known:
        return "", []
    first = next(iter(known.values()))
    if all(found == first for found in known.values()):
        return first, []
    return "", [
        Check(
            "engine.image",
            name,
            False,
            f"{wanted.reference} is {short(found)} here",
            f"one image of that name on all nodes ({', '.join(f'{node} has {short(other)}' for node, other in known.items())})",
            f"{wanted.runtime} image rm {wanted.reference} on the nodes with the wrong one, or set image_id in engine_overrides",
        )
        for name, found in known.items()
    ]


def _blind(node: Node) -> Check:
    return Check(
        "engine.image",
        node.name,
        False,
        node.problem,
        "the images of the node",
        "start the container engine on the node",
    )


def _origin(wanted: Wanted, nodes: Sequence[Node], image_id: str) -> tuple[dict[str, Step], list[Check]]:
    """Nobody has the image: the first node loads the archive or pulls, the others take it from there afterwards."""
    first, idle = nodes[0], {node.name: Step("none") for node in nodes}
    check = _archive_check(wanted, first, image_id) if wanted.archive else _pull_check(wanted, first, image_id)
    if check:
        return idle, [check]
    # Who takes from whom is the same with the origin as the only holder, so that a dry run can tell.
    steps, apart = _spread(nodes, {first.name})
    steps[first.name] = Step("load" if wanted.archive else "pull", listen=steps[first.name].listen)
    return steps, [_apart(name, nodes, image_id) for name in apart]


def _archive_check(wanted: Wanted, first: Node, image_id: str) -> Check | None:
    if image_id and image_id in first.archive_ids:
        return None
    if first.archive_problem:
        return Check(
            "engine.image",
            first.name,
            False,
            first.archive_problem,
            _ARCHIVE,
            "bring it, or correct engine_image_archive",
        )
    found = ", ".join(first.archive_ids) or "no image"
    cure = (
        f"set image_id in engine_overrides to {first.archive_ids[0]}"
        if first.archive_ids
        else "bring an archive of `docker save`"
    )
    return Check(
        "engine.image",
        first.name,
        False,
        f"{wanted.archive} holds {found}",
        image_id or "image_id in the profile, since an archive cannot show by which digest it was published",
        f"{cure}, if that is the image that you mean",
    )


def _pull_check(wanted: Wanted, first: Node, image_id: str) -> Check | None:
    if wanted.reference:
        return None
    return Check(
        "engine.image",
        first.name,
        False,
        f"no node has {image_id}",
        "the image on one node, a name to pull it by, or an archive of it",
        f"build or load it on {first.name}, set image in engine_overrides, or engine_image_archive",
    )


def _spread(nodes: Sequence[Node], holders: set[str]) -> tuple[dict[str, Step], list[str]]:
    """Each node that lacks the image takes it from neighbours, those that are nearest to it first; and the nodes out of reach."""
    have, wave = set(holders), 0
    actions: dict[str, Step] = {node.name: Step("keep") for node in nodes if node.name in have}
    file = File(path="image", size=1, etag="", digest="sha256:image")
    owner = {end.address: node.name for node in nodes for end in node.place.ends}
    asked: set[str] = set()
    while len(have) < len(nodes):
        group = [
            fanout.Node(
                node.name, node.place.rank, node.place.ends, frozenset(() if node.name in have else (file.path,))
            )
            for node in nodes
        ]
        routes = fanout.share([file], group).routes
        wave += 1
        reached = {}
        for node in nodes:
            sources = tuple(
                address for address in routes.get(node.name, {}).get(file.path, ()) if owner[address] in have
            )
            if node.name not in have and sources:
                givers = tuple(dict.fromkeys(owner[address] for address in sources))
                reached[node.name] = Step("take", wave, sources, givers=givers)
        if not reached:
            break
        asked.update(address for step in reached.values() for address in step.sources)
        actions.update(reached)
        have.update(reached)
    apart = [node.name for node in nodes if node.name not in have]
    actions.update({name: Step("none") for name in apart})
    return {node.name: _listening(actions[node.name], node, asked) for node in nodes}, apart


def _listening(step: Step, node: Node, asked: set[str]) -> Step:
    listen = tuple({"address": end.address, "netdev": end.netdev} for end in node.place.ends if end.address in asked)
    return Step(step.action, step.wave, step.sources, listen, step.givers)


def _apart(name: str, nodes: Sequence[Node], image_id: str) -> Check:
    others = ", ".join(node.name for node in nodes if node.name != name)
    return Check(
        "engine.image",
        name,
        False,
        f"no fabric address in a subnet of {others}",
        f"a way over the fabric to a node with {short(image_id) if image_id else 'the image'}",
        "run the fabric role, or load the image on this node by hand",
    )


def _budget(node: Node, steps: Mapping[str, Step], size: int, ceiling_percent: int) -> Check | None:
    """Whether what the node is about to hold fits under the ceiling; None for a node that does nothing."""
    step = steps[node.name]
    takers = sum(node.name in other.givers[:1] for other in steps.values())
    brings = BRING * size if step.action in ("pull", "load", "take") else 0
    # Before it gives the image on the node has got rid of the temporary file of its own transfer.
    needed = max(brings, (size if brings else 0) + GIVE * takers * size)
    if not needed:
        return None
    used, limit = node.disk_size - node.disk_available, node.disk_size * ceiling_percent // 100
    after = used + needed
    return Check(
        "engine.image_budget",
        node.name,
        after <= limit,
        f"{units.human(used)} used + {units.human(needed)} while the image moves = {units.human(after)} of {units.human(node.disk_size)}",
        f"at most {ceiling_percent} % = {units.human(limit)}",
        f"free {units.human(after - limit)} (old images: docker or podman image prune), or raise engine_image_ceiling_percent"
        if after > limit
        else "",
    )


def checks(wanted: Wanted, nodes: Sequence[Node], expected: str = "", units_too: bool = True) -> list[Check]:
    """engine.image for each node: it has the image that all are to run. expected: its id where the caller knows it.

    Without an id in the profile or in a node's list of names, the first node's unit tells.
    """
    found, disagreement = (expected, []) if expected else target(wanted, nodes)
    if disagreement:
        return disagreement
    image_id = found or next((node.unit_image for node in nodes if node.unit_image.startswith(_ALONE)), "")
    return [_blind(node) if node.problem else _image_check(wanted, node, image_id, units_too) for node in nodes]


def _image_check(wanted: Wanted, node: Node, image_id: str, units_too: bool) -> Check:
    what = image_id or wanted.reference
    cure = "ansible-playbook gb10.ring.site --tags engine: it brings the image from a node that has it"
    if not image_id or image_id not in node.images:
        return Check("engine.image", node.name, False, f"no image {what}", f"{what} on every node", cure)
    if units_too and node.unit_image and node.unit_image not in (image_id, wanted.reference):
        return Check("engine.image", node.name, False, f"its unit runs {node.unit_image}", image_id, cure)
    return Check("engine.image", node.name, True, image_id, image_id)


def move(decision: Decision, name: str, reference: str) -> str:
    """What a node does, in one line for people; empty when it does nothing."""
    step = decision.steps[name]
    what = short(decision.image_id) if decision.image_id else reference
    size = f" ({units.human(decision.size)})" if decision.size else ""
    if step.action == "take":
        return f"takes {what}{size} from {' or '.join(step.givers)} at {', '.join(step.sources)}"
    return {"pull": f"pulls {reference}", "load": f"loads {what} from the archive"}.get(step.action, "")


def plan_step(action: str, image_id: str, there: bool, what: str) -> Plan:
    """The change of one node. there: whether it has the image. what: `move`, for people."""
    if action in ("keep", "none") or there:
        return Plan()
    return Plan(
        (Change(f"container image {short(image_id) or 'not known yet'}", "", what or action, "the ranks run it"),)
    )


def own_name(image_id: str) -> str:
    """What an image that was brought is called on the nodes: one without a name is taken for waste by `image prune`."""
    return f"{REPOSITORY}:{image_id.partition(':')[2][:12]}"


def short(image_id: str) -> str:
    return image_id[:19] if image_id.startswith(_ALONE) else image_id
