# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether CUDA graphs were captured and draft tokens are accepted, of vLLM and of SGLang; pure."""

from __future__ import annotations

import re

from ..report.checks import Check, Severity
from .gate_claims import RESTART, Seen, Started, metric, shown, untold, values

_VLLM_GRAPHS = re.compile(r"Graph capturing finished in .*")  # gpu_model_runner
# SGLang's model_runner: "Capture cuda graph end. Time elapsed: 7.23 s", of later builds "Capture target decode CUDA graph end. elapsed=16.40 s".
_SGLANG_GRAPHS = re.compile(r"(?i)capture (?!draft)[\w ]*cuda graph end")
_ACCEPTED = re.compile(
    r"Decode batch.*accept len: ([\d.]+)"
)  # SGLang's scheduler, every 40 steps; 1.00 is no accepted draft token
_ENOUGH_DRAFTS = 50  # draft tokens before a rate of 0 says anything
_ENOUGH_TOKENS = (
    100  # generated tokens before "no draft token at all" says anything; the first token of each answer has none
)


def graphs(node: str, claims: Started, seen: Seen) -> list[Check]:
    mode = _sglang_graphs(claims) if claims.engine == "sglang" else _vllm_graphs(claims)
    if not mode:
        return []
    pattern = _SGLANG_GRAPHS if claims.engine == "sglang" else _VLLM_GRAPHS
    said = "Capture cuda graph end" if claims.engine == "sglang" else "Graph capturing finished"
    lines = [line for line in seen.lines if pattern.search(line)]
    return [
        Check(
            "engine.cuda_graphs",
            node,
            ok=bool(lines),
            found=shown(lines, "no graph was captured"),
            expected=f"{said} ({mode})",
            cure=f"look in the journal why nothing was captured; {RESTART}. Decoding without graphs is slower, not wrong",
            severity="warning",
        )
    ]


def _vllm_graphs(claims: Started) -> str:
    mode = str(claims.mapping("--compilation-config").get("cudagraph_mode", "NONE"))
    return "" if mode == "NONE" or "--enforce-eager" in claims.argv else f"cudagraph_mode {mode}"


def _sglang_graphs(claims: Started) -> str:
    """The flag that asks for graphs. SGLang captures them without one too, which claims nothing."""
    asked = [word.partition("=")[0] for word in claims.argv if word.startswith("--cuda-graph-")]
    return "" if "--disable-cuda-graph" in claims.argv or not asked else asked[0]


def speculation(node: str, claims: Started, seen: Seen) -> list[Check]:
    """Accepted draft tokens: the head counts them."""
    if seen.metrics is None:
        return []
    return _sglang(node, claims, seen) if claims.engine == "sglang" else _vllm(node, claims, seen.metrics)


def _vllm(node: str, claims: Started, metrics: str) -> list[Check]:
    method = claims.mapping("--speculative-config").get("method")
    if not method:
        return []
    drafted, accepted = (metric(metrics, f"vllm:spec_decode_num_{what}_tokens_total") for what in ("draft", "accepted"))
    generated = metric(metrics, "vllm:generation_tokens_total") or 0
    severity: Severity = "error"
    if drafted is None:
        found, ok = "no count of draft tokens in /metrics", False
    elif drafted < _ENOUGH_DRAFTS and not (not drafted and generated > _ENOUGH_TOKENS):
        found = f"{drafted:.0f} draft tokens so far, too few to judge"
        ok, severity = bool(accepted), "info"
    else:
        share = f" ({100 * (accepted or 0) / drafted:.0f} %)" if drafted else f" in {generated:.0f} generated tokens"
        found, ok = f"{accepted or 0:.0f} of {drafted:.0f} draft tokens accepted{share}", bool(accepted)
    return [_drafts(node, ok, found, str(method), severity)]


def _sglang(node: str, claims: Started, seen: Seen) -> list[Check]:
    """By the gauge of /metrics where the server has it (--enable-metrics), else by what the scheduler prints."""
    method = claims.option("--speculative-algorithm") or "NONE"
    if method.upper() == "NONE":
        return []
    gauge = max(values(seen.metrics or "", "sglang:spec_accept_length"), default=0.0)
    lengths = (
        [gauge] if gauge else [float(match[1]) for line in seen.lines for match in [_ACCEPTED.search(line)] if match]
    )
    if not lengths:
        needs = (
            "enable-metrics: true in the profile's options, or ask for more text (verify.yml -e engine_acceptance=true)"
        )
        return untold("engine.speculation", node, f"--speculative-algorithm {method}", needs)
    found = f"{lengths[-1]:.2f} tokens a step, {max(lengths):.2f} at best"
    return [_drafts(node, max(lengths) > 1, found, method, "error")]


def _drafts(node: str, ok: bool, found: str, method: str, severity: Severity) -> Check:
    return Check(
        "engine.speculation",
        node,
        ok=ok,
        found=found,
        expected=f"draft tokens of {method} accepted",
        cure=f"look in the journal whether the drafter was loaded; {RESTART}. Without it decoding is slower, not wrong",
        severity=severity,
    )
