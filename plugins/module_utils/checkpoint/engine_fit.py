# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what is to be done on the nodes is what the engine's profile reads, and can be switched. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..report.checks import Check


def checks(
    engine: Mapping[str, Any], placement: str, rule: str, tensor_parallel: int, node: str, *, switches: bool = False
) -> list[Check]:
    """What does not fit, one failed check each. engine: the complete profile, empty when no engine is known.

    tensor_parallel: ranks that config.json is edited for, 0 for none. node: carries the checks. switches: whether the engine is to be
    stopped and started for it.
    """
    if not engine:
        return []
    found = [*_rows(engine, placement, rule, node), *_config(engine, tensor_parallel, node)]
    return [*found, *_renderer(engine, node)] if switches else found


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
