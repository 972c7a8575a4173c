# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a rank can be started: what was found on its node, turned into checks, all of them; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..report.checks import Check, Severity
from . import traces
from .traces import Traces

_SHOWN = 5
_IN_IMAGE = "not looked at: the image carries them"


@dataclass(frozen=True)
class Start:
    """One node before a start. active: whether its rank runs. missing: files of the model. image: why it cannot be run, or empty.

    restart: whether the group is to be stopped and started, if it runs or not.
    memory: why the engine does not fit, or empty. kernels: compiled objects in the cache; None: the image carries them.
    """

    node: str
    unit: str
    active: bool
    found: Traces
    model: str
    missing: tuple[str, ...] = ()
    image_name: str = ""
    image: str = ""
    memory: str = ""
    kernels: tuple[str, ...] | None = ()
    restart: bool = True

    @property
    def starts(self) -> bool:
        """Whether the rank will load, beside which nothing may be compiled. One that runs compiles kernels at its first requests."""
        return self.restart or not self.active


def checks(start: Start) -> list[Check]:
    """Those that make no sense on this node are left out."""
    made = [_stale(start), _ports(start), _model(start), _kernels(start)]
    if start.found.gpu is not None or start.found.gpu_problem:
        made.append(_gpu(start))
    if start.image_name:
        made.append(_image(start))
    if not start.active:
        made.append(_memory(start))
    return made


def _stale(start: Start) -> Check:
    stale = traces.stale(start.found, start.unit, start.active)
    return Check(
        id="engine.stale",
        node=start.node,
        ok=not stale,
        found="; ".join(stale) or "no other engine",
        expected=f"no engine but that of {start.unit}",
        cure="end it, with its whole process group or its container: it holds memory and a rendezvous that the group would meet",
    )


def _ports(start: Start) -> Check:
    taken = traces.taken(start.found, start.unit, start.active)
    return Check(
        id="engine.ports",
        node=start.node,
        ok=not taken,
        found="; ".join(taken) or "free, or the engine's",
        expected="nobody else listens at the ports of the API and of the rendezvous",
        cure="end what listens there, or set engine_port or engine_rendezvous_port to others",
    )


def _gpu(start: Start) -> Check:
    users = traces.gpu_users(start.found, start.unit, start.active)
    unknown = start.found.gpu_problem
    return Check(
        id="engine.gpu",
        node=start.node,
        ok=not users and not unknown,
        found=unknown or "; ".join(users) or "nobody else computes on it",
        expected="a GPU that answers, and that nobody else computes on",
        cure="see why nvidia-smi fails (dmesg, the driver's version); a reboot of the node is the usual cure"
        if unknown
        else "end the processes named above",
    )


def _model(start: Start) -> Check:
    return Check(
        id="engine.model",
        node=start.node,
        ok=not start.missing,
        found=f"{_some(start.missing)} missing" if start.missing else "every file",
        expected=f"the files of {start.model}",
        cure="run the checkpoint role",
    )


def _image(start: Start) -> Check:
    return Check(
        id="engine.image",
        node=start.node,
        ok=not start.image,
        found=start.image or start.image_name,
        expected=f"image {start.image_name} on the node: a start pulls none",
        cure="bring the image to the node (docs/engine.md)",
    )


def _memory(start: Start) -> Check:
    return Check(
        id="engine.memory",
        node=start.node,
        ok=not start.memory,
        found=start.memory or "enough memory",
        expected="the memory that the engine takes",
        cure="what is said there",
    )


def _kernels(start: Start) -> Check:
    cut = traces.half_built(start.kernels or ())
    fine = _IN_IMAGE if start.kernels is None else "no build was cut short"
    return Check(
        id="engine.kernels",
        node=start.node,
        ok=not cut,
        found=f"object files and no library in {_some(cut)}" if cut else fine,
        expected="compiled kernels, or none",
        cure=f"{'' if start.starts else 'when they are still there before the next start: '}remove these directories from the engine's cache: "
        "a build that is taken up at the start takes the memory of the weights",
        severity=_severity(start.starts),
    )


def _severity(starts: bool) -> Severity:
    return "error" if starts else "warning"


def parity(
    found: Sequence[Mapping[str, Any]], kernels: Mapping[str, Sequence[str] | None], starts: bool = True
) -> list[dict[str, Any]]:
    """The checks of all nodes, and whether their compiled kernels are the same. kernels: by node; None: the image carries them.

    starts: whether any rank will load; a group that runs compiles what it is first asked for, one rank before another.
    """
    looked_at = {node: paths for node, paths in kernels.items() if paths is not None}
    lacking = traces.caches(looked_at)
    alike = "the kernels that the other nodes have" if any(looked_at.values()) else "none on any node"
    rows = [
        Check(
            id="engine.caches",
            node=node,
            ok=node not in lacking,
            found=f"lacks {_some(lacking[node])}" if node in lacking else alike if node in looked_at else _IN_IMAGE,
            expected="the same compiled kernels on every node",
            cure="copy the engine's cache from a node that has them: compiling beside loaded weights took nodes down (LLMKube)",
            severity=_severity(starts),
        )
        for node in kernels
    ]
    return [*(dict(check) for check in found), *(row.to_dict() for row in rows)]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
