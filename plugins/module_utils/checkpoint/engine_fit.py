# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what is to be done on the nodes is what the engine's profile reads, and can be switched. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.engram_place import RULES
from ..engine.profile import ENGINES, RENDERERS
from ..report.checks import Check
from . import units
from .engram import MOST_RANKS

_DIGITS = re.compile(r"[0-9]{1,2}")


class FitError(ValueError):
    """Something that is no profile or no number of ranks; the text is the message for the user."""


def checks(
    engine: Any, placement: str, rule: str, tensor_parallel: Any, node: str, *, switches: bool = False
) -> list[Check]:
    """What does not fit, one failed check each. engine: the complete profile, empty when no engine is known.

    tensor_parallel: ranks that config.json is edited for, 0 for none; as text too, as a template may give it. node: carries the checks.
    switches: whether the engine is to be stopped and started for it. Raises FitError.
    """
    ranks = _ranks(tensor_parallel)
    if not engine:
        return []
    _refuse_others(engine)
    found = [*_rows(engine, placement, rule, node), *_config(engine, ranks, node)]
    return [*found, *_renderer(engine, node)] if switches else found


def _ranks(value: Any) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_RANKS:
        raise FitError(f"checkpoint_tensor_parallel is {units.shown(value)}, expected 0 to {MOST_RANKS}")
    return number


def _refuse_others(engine: Any) -> None:
    """What the lookup engine_profile does not give. Raises FitError."""
    if not isinstance(engine, Mapping):
        raise FitError(
            f"checkpoint_engine is {units.shown(engine)}, expected a complete profile as the lookup gb10.ring.engine_profile gives it"
        )
    for key, allowed in (("engine", ENGINES), ("renderer", RENDERERS)):
        if engine.get(key) not in allowed:
            raise FitError(f"checkpoint_engine.{key} is {_found(engine, key)}, allowed: {', '.join(allowed)}")
    engram = engine.get("engram")
    if engram is not None and not isinstance(engram, Mapping):
        raise FitError(f"checkpoint_engine.engram is {units.shown(engram)}, expected a mapping or nothing")
    if engram and engram.get("rule") and engram["rule"] not in RULES:
        raise FitError(f"checkpoint_engine.engram.rule is {units.shown(engram['rule'])}, allowed: {', '.join(RULES)}")
    if not isinstance(engine.get("name"), str):
        raise FitError(f"checkpoint_engine.name is {_found(engine, 'name')}, expected a text")


def _found(engine: Mapping[str, Any], key: str) -> str:
    return units.shown(engine[key]) if key in engine else "not there"


def _renderer(engine: Mapping[str, Any], node: str) -> Iterator[Check]:
    """Pods are no units of systemd: nothing here would stop them, and they would go on reading what is replaced."""
    if engine["renderer"] == "kubernetes":
        yield Check(
            id="checkpoint.renderer",
            node=node,
            ok=False,
            found="the engine runs in pods (engine_renderer: kubernetes), which restage.yml and rollback.yml neither stop nor start",
            expected="ranks that run as units of systemd (venv, docker, podman), or checkpoint_serves: false",
            cure="run site.yml, which stages the revision beside the one that is served and describes it for the cluster, and start the "
            "group anew: engine_state: restarted with engine_kubeconfig, or delete the InferenceService and apply the files (docs/engine.md, "
            "Kubernetes). With checkpoint_serves: false only files and the link current change here",
        )


def _rows(engine: Mapping[str, Any], placement: str, rule: str, node: str) -> Iterator[Check]:
    wanted = (engine.get("engram") or {}).get("rule") or engine["engine"]
    if rule != wanted and (rule or placement != "full"):
        yield Check(
            id="checkpoint.engram_rule",
            node=node,
            ok=False,
            found=f"checkpoint_engram_rule is {rule or 'empty'}",
            expected=f"{wanted}, by which profile {engine['name']} (engine {engine['engine']}) reads Engram rows",
            cure="leave checkpoint_engram_rule out, or name the profile of the engine that is to read them: rows that were cut by "
            "the other rule are read as zeros on every rank but the first",
        )


def _config(engine: Mapping[str, Any], tensor_parallel: int, node: str) -> Iterator[Check]:
    if tensor_parallel and engine["engine"] != "vllm":
        yield Check(
            id="checkpoint.config_edit",
            node=node,
            ok=False,
            found=f"checkpoint_tensor_parallel is {tensor_parallel}, which edits config.json for vLLM",
            expected=f"0 with profile {engine['name']} (engine {engine['engine']})",
            cure="leave checkpoint_tensor_parallel out: other engines take config.json as it comes and pad by themselves, or cannot",
        )
