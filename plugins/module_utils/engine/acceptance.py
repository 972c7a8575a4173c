# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance test of a serving group: which questions, in which order, and the checks they come to; pure but for the sending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import acceptance_exact as exact
from . import acceptance_fit as fit
from . import acceptance_long as long
from .asking import Answer, Asking, Judged, Probe, Request

Send = Callable[[Sequence[Request], bool], list[Answer]]

NAMES = (
    "health",
    "models",
    "arithmetic",
    "count",
    "logprobs",
    "reasoning",
    "tools",
    "nonce",
    "streams",
    "needle",
    "image",
    "parity",
)
# Without these nothing else has an answer worth judging.
FIRST = ("health", "models")


@dataclass(frozen=True)
class Settings:
    """probes: some of NAMES. needle_lengths in tokens. thinking: the profile's. sees: whether there is anybody to look at a picture. reference:
    prompts with tokens, as recorded; none records or skips. unreadable: why there is none where one was named. profile: the completed one that
    the group runs, empty when nothing is known of it."""

    probes: tuple[str, ...]
    streams: int = 4
    needle_lengths: tuple[int, ...] = ()
    thinking: Mapping[str, Any] = field(default_factory=dict)
    sees: bool = False
    reference: tuple[Mapping[str, Any], ...] = ()
    unreadable: str = ""
    record: bool = False
    near_tie: float = 0.2
    profile: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What came of one probe."""

    probe: Probe
    judged: Judged
    answers: tuple[Answer, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.probe.name,
            "ok": self.judged.ok,
            "asked": self.probe.asked,
            "expected": self.probe.expected,
            "answered": self.judged.answered,
            "seconds": round(sum(answer.seconds for answer in self.answers), 3),
        }

    def to_check(self, node: str) -> dict[str, Any]:
        """In the shape of report.checks.Check, with what was asked and answered beside."""
        return {
            "id": f"engine.acceptance_{self.probe.name}",
            "node": node,
            "ok": self.judged.ok,
            "severity": "error",
            "found": self.judged.answered,
            "expected": self.probe.expected,
            "cure": self.probe.cure,
            "asked": self.probe.asked,
            "answered": self.judged.answered,
        }


def probes(asking: Asking, settings: Settings) -> list[Probe]:
    """The chosen ones, in the order of NAMES."""
    makers: dict[str, Callable[[], list[Probe]]] = {
        "health": lambda: [exact.health()],
        "models": lambda: [exact.models(asking)],
        "arithmetic": lambda: [exact.arithmetic(asking)],
        "count": lambda: [exact.count(asking)],
        "logprobs": lambda: [exact.logprobs(asking)],
        "reasoning": lambda: [exact.reasoning(asking, fit.aloud(settings.profile, settings.thinking))],
        "tools": lambda: [exact.tools(asking)],
        "nonce": lambda: [exact.nonce(asking)],
        "streams": lambda: [exact.streams(asking, settings.streams)],
        "needle": lambda: [long.needle(asking, length) for length in settings.needle_lengths],
        "image": lambda: [long.image(asking)] if settings.sees else [],
        "parity": lambda: _parity(asking, settings),
    }
    return [probe for name in NAMES if name in settings.probes for probe in makers[name]()]


def split(asking: Asking, settings: Settings) -> tuple[list[Probe], list[tuple[Probe, str]]]:
    """The chosen ones that are asked, and those that are not, each with why: by its profile the group has no right answer to them."""
    reasons = fit.reasons(settings.profile, settings.thinking, asking)
    flag, most = fit.length(settings.profile)
    judged = [(probe, reasons.get(probe.name) or fit.too_long(probe, flag, most)) for probe in probes(asking, settings)]
    return [probe for probe, why in judged if not why], [(probe, why) for probe, why in judged if why]


def unasked(probe: Probe, why: str, node: str) -> dict[str, Any]:
    """What is told of a question that is not asked, in the shape of Result.to_check."""
    found = f"not asked: {why}"
    return {
        "id": f"engine.acceptance_{probe.name}",
        "node": node,
        "ok": False,
        "severity": "info",
        "found": found,
        "expected": probe.expected,
        "cure": "change the profile where the model can do it, or leave the question out of engine_acceptance_probes",
        "asked": "nothing",
        "answered": found,
    }


def _parity(asking: Asking, settings: Settings) -> list[Probe]:
    if settings.record:
        return [long.recording(asking)]
    if settings.unreadable:
        return [long.without_reference(settings.unreadable)]
    return [long.parity(asking, settings.reference, settings.near_tie)] if settings.reference else []


def run(chosen: Sequence[Probe], send: Send) -> list[Result]:
    """Ask one probe after the other. When the server is not there, or serves another model, the rest has nothing to tell."""
    results: list[Result] = []
    for probe in chosen:
        answers = send(probe.requests, probe.together)
        results.append(Result(probe, probe.judge(answers), tuple(answers)))
        if probe.name in FIRST and not results[-1].judged.ok:
            break
    return results


def left_out(chosen: Sequence[Probe], results: Sequence[Result]) -> list[str]:
    """Names of what was not asked."""
    return [probe.name for probe in chosen[len(results) :]]
