# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One specification in, the files of a node out, by their paths."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

from ..checkpoint import row_probe
from . import gid_probe, render_docker, render_podman, render_venv
from .spec import EngineSpec
from .unit import GID_PROGRAM, NAME, RECORD, ROWS_PROGRAM, digest

_RENDERERS = {"venv": render_venv.render, "docker": render_docker.render, "podman": render_podman.render}
# Every file that some renderer makes: what one of them does not make is removed when it takes over from another.
OWNED = (RECORD, GID_PROGRAM, ROWS_PROGRAM, render_podman.PATH, render_venv.PATH)


def with_hash(spec: EngineSpec) -> EngineSpec:
    """The specification with the identity of all that decides whether a running engine is current."""
    blank = replace(spec, hash="")
    return replace(spec, hash=digest(json.dumps([_unit(blank), spec.model["config_sha256"]], sort_keys=True)))


def render(spec: EngineSpec) -> dict[str, str]:
    """Path to content; the unit comes last, so that all it needs is there when systemd reads it. spec: from with_hash()."""
    return {RECORD: record(spec), GID_PROGRAM: source(gid_probe), ROWS_PROGRAM: source(row_probe), **_unit(spec)}


def _unit(spec: EngineSpec) -> dict[str, str]:
    if spec.renderer not in _RENDERERS:
        raise ValueError(f"renderer {spec.renderer} writes nothing on nodes")
    return _RENDERERS[spec.renderer](spec)


def unit_path(spec: EngineSpec) -> str:
    return next(iter(_unit(spec)))


def enabled_by_systemctl(spec: EngineSpec) -> bool:
    """Whether the unit is enabled with systemctl. Podman's generator does it for quadlets, from their [Install] section."""
    return spec.renderer != "podman"


def record(spec: EngineSpec) -> str:
    """What the unit was rendered from, for people and for what watches the group."""
    content: dict[str, Any] = {"unit": NAME, **spec.to_dict()}
    return json.dumps(content, indent=2) + "\n"


def source(program: ModuleType) -> str:
    """The text of a program that the unit runs, also from within a module's archive."""
    loader = program.__spec__.loader if program.__spec__ else None
    text = loader.get_source(program.__name__) if loader and hasattr(loader, "get_source") else None
    if not text:
        raise ValueError(f"the source of {program.__name__} cannot be read")
    return str(text)
