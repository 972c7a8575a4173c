# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of the module engine_watch: from its options to a plan, to its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import own_service_host
from ..memory import guard_machine
from ..own_service import Found, ServicePlan, decide, decide_absent, digest_of
from . import (
    diagnosis,
    diagnosis_signs,
    diagnosis_table,
    group_incident,
    group_intent,
    thinking,
    watch,
    watch_group,
    watch_probe,
    watch_service,
)
from .watch import Limits, limits_from
from .watch_checks import checks
from .watch_unit import PROGRAM, Places, files, service

_MODULES = dict(
    zip(
        PROGRAM,
        (
            diagnosis,
            diagnosis_signs,
            diagnosis_table,
            group_incident,
            group_intent,
            thinking,
            watch,
            watch_group,
            watch_probe,
            watch_service,
            guard_machine,
        ),
        strict=True,
    )
)


def wanted(options: Mapping[str, Any]) -> Limits:
    """The limits, the module's defaults and the given ones together. Raises ValueError with what is wrong."""
    given = options["limits"] or {}
    unknown = sorted(set(given) - set(Limits._fields))
    if unknown:
        raise ValueError(f"limits: unknown {', '.join(unknown)}; there are {', '.join(Limits._fields)}")
    try:
        numbers = {name: float(value) for name, value in given.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"limits: expected numbers: {error}") from error
    for name in ("failures", "relaunches"):
        if name in numbers:
            numbers[name] = int(numbers[name])
    try:
        return limits_from({**Limits()._asdict(), **numbers})
    except ValueError as error:
        raise ValueError(f"limits: {error}") from error


@dataclass
class Call:
    """limits: None to have no watchdog. found: the node as it is now."""

    places: Places
    limits: Limits | None
    digest: str
    found: Found
    planned: ServicePlan

    def apply(self) -> None:
        """Raises HostError."""
        own_service_host.apply(service(self.places), self.planned)
        if self.planned.plan.changed:
            self.found = own_service_host.look(service(self.places))

    def result(self, node: str, clock: Callable[[], float]) -> dict[str, Any]:
        """What the module returns."""
        plan = self.planned.plan
        shown = {"changed": plan.changed, "diff": plan.diff(), "checks": []}
        if self.limits is None:
            return shown
        one = service(self.places)
        wait = 5.0 if self.found.active else 0.0  # a watchdog that was just started has yet to say something
        seen = own_service_host.settled(one, lambda status: status.get("digest") == self.digest, wait)
        if seen.get("digest"):
            self.found = own_service_host.look(one)
        rows = checks(node, self.found, self.digest, status=seen, limits=self.limits, now=clock())
        return {**shown, "checks": [row.to_dict() for row in rows], "limits": self.limits._asdict()}


def prepare(options: Mapping[str, Any]) -> Call:
    """Look and plan. Raises ValueError for options, HostError for the machine."""
    places = Places(options["etc_root"], options["lib_root"], options["state_root"], options["run_root"])
    one = service(places)
    if options["state"] == "absent":
        found = own_service_host.look(one)
        return Call(places, None, "", found, decide_absent(one, found))
    limits = wanted(options)
    texts = files(limits, places, own_service_host.sources(_MODULES), sys.executable)
    found = own_service_host.look(one)
    return Call(places, limits, digest_of(texts[places.settings]), found, decide(one, found, texts))
