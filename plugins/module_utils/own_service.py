# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small service of ours on a node: its files, and the plan that takes a node to them or away from them; pure.

Its settings are a JSON file with a key "digest", and its status, which it writes while it runs, repeats that digest: so a service
that runs from other files than the wanted ones is known as such.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .plan import Change, Plan

_A_TOKEN, _OTHER_TOKEN, _SHOWN_NOT = "a token of the group\n", "another token\n", "shown nowhere"


@dataclass(frozen=True)
class Service:
    """unit: its name. unit_path, settings, status: paths. token: path of its secret, empty without one.

    what: a few words for changes. owned: every file that uninstalling removes. folders: removed when they are empty, in this order.
    """

    unit: str
    unit_path: str
    settings: str
    status: str
    what: str
    owned: tuple[str, ...]
    folders: tuple[str, ...] = ()
    token: str = ""


@dataclass(frozen=True)
class Found:
    """The node as it is. files: text by path, None when absent. digest: of what the running service was started from."""

    files: Mapping[str, str | None]
    active: bool = False
    enabled: bool = False
    digest: str = ""
    token: str = ""


@dataclass(frozen=True)
class ServicePlan:
    """files: path to (text, mode), text None to remove. What else is to be done, and the plan that shows all of it."""

    files: Mapping[str, tuple[str | None, int]] = field(default_factory=dict)
    enable: bool = False
    restart: bool = False
    disable: bool = False
    plan: Plan = field(default_factory=Plan)


def settings_text(settings: Mapping[str, Any], others: Sequence[str]) -> str:
    """The settings with the digest of themselves and of the other files' texts."""
    plain = json.dumps(settings, sort_keys=True)
    digest = hashlib.sha256("".join([plain, *others]).encode()).hexdigest()[:16]
    return json.dumps({**settings, "digest": digest}, indent=2, sort_keys=True) + "\n"


def digest_of(settings: str | None) -> str:
    """The digest in the settings' text, empty when there is none."""
    try:
        found = json.loads(settings or "")
    except ValueError:
        return ""
    return str(found.get("digest", "")) if isinstance(found, dict) else ""


def decide(
    service: Service,
    found: Found,
    texts: Mapping[str, str],
    token: str | None = None,
    executable: Sequence[str] = (),
) -> ServicePlan:
    """What it takes to have the service of these files run. token: None leaves the node's as it is."""
    writes: dict[str, tuple[str | None, int]] = {}
    changes = []
    for path, text in texts.items():
        before = found.files.get(path)
        if before != text:
            writes[path] = (text, 0o755 if path in executable else 0o644)
            changes.append(Change(path, before or "", text, service.what))
    if service.token and token is not None and token != found.token:
        writes[service.token] = (token + "\n", 0o600)
        before = _A_TOKEN if found.token else ""
        changes.append(Change(service.token, before, _OTHER_TOKEN if found.token else _A_TOKEN, _SHOWN_NOT))
    digest = digest_of(texts[service.settings])
    restart = not found.active or found.digest != digest
    if not found.enabled:
        changes.append(Change(f"{service.unit} at boot", "disabled", "enabled", service.what))
    if restart:
        before = f"active, {found.digest or 'of other files'}" if found.active else "inactive"
        changes.append(Change(service.unit, before, f"active, {digest}", service.what))
    return ServicePlan(writes, enable=not found.enabled, restart=restart, plan=Plan(tuple(changes)))


def decide_absent(service: Service, found: Found) -> ServicePlan:
    """What it takes to have no such service."""
    there = [path for path in service.owned if found.files.get(path) is not None]
    changes = [
        Change(path, _A_TOKEN if path == service.token else found.files[path] or "", "", "removed") for path in there
    ]
    running = found.active or found.enabled
    if running:
        changes.insert(0, Change(service.unit, "active" if found.active else "enabled", "", "stopped and disabled"))
    return ServicePlan({path: (None, 0) for path in there}, disable=running, plan=Plan(tuple(changes)))
