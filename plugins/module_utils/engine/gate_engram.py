# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a rank reads its own Engram rows, of every table, from where it was told; pure.

An engine that finds no rows in its directory reads them elsewhere and says so in one line; with wrong rows the answers are subtly wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..report.checks import Check
from .gate_claims import Seen, Started, Tables, shown

# Patched engram.py of tonyd2wild/DeepSeek-V4.1-Flash-vLLM-DGX-Spark; import hooks of the SGLang overlay for the GB10.
_LOCAL = re.compile(r"Engram layer (\d+) rows \[(\d+), (\d+)\) read from node-local (\S+)")
_DISK = re.compile(r"Engram DISK mode: layer (\d+) rows \[(\d+), (\d+)\) read from (\S+)")
_FALLBACK = re.compile(r"DSV41_ENGRAM_DIR=\S+ unusable for layer|holds layer \d+ rows .* this rank needs")
_OWNS = re.compile(r"(?i)engram layer (\d+): rank \d+/\d+ owns rows(?:\D+(\d+)\D+(\d+))?")
OWNS = "owns rows"
_CURE = "compare the rows of this node with its rank (checkpoint.engram), stage them again if they differ, then restart the group"


def rows(node: str, claims: Started, seen: Seen) -> list[Check]:
    if claims.engine == "sglang":
        return _sglang(node, claims, seen)
    return _vllm(node, claims, seen)


def forbidden(claims: Started) -> list[str]:
    """Patterns of the lines that fail rows whenever they come, as Python and PCRE2 read them."""
    return [_FALLBACK.pattern] if claims.engine != "sglang" and _on_disk(claims) else []


def _on_disk(claims: Started) -> bool:
    return claims.env.get("DSV41_ENGRAM_DISK") == "1"


def _vllm(node: str, claims: Started, seen: Seen) -> list[Check]:
    if not _on_disk(claims):
        return []
    local = claims.env.get("DSV41_ENGRAM_DIR", "").rstrip("/")
    told = [match for line in seen.lines for match in [(_LOCAL if local else _DISK).search(line)] if match]
    read = [(match[1], (int(match[2]), int(match[3]))) for match in told]
    fallen = [line for line in seen.lines if _FALLBACK.search(line)]
    elsewhere = [match[0] for match in told if local and match[4].rstrip("/,;.") != local]
    wrong = [*(shown([line], "") for line in fallen[-1:]), *elsewhere[:1], *_differences(claims.tables, read)]
    place = f"node-local {local}" if local else "the shards on disk"
    return [_judged(node, read, wrong, place, claims.tables)]


def _sglang(node: str, claims: Started, seen: Seen) -> list[Check]:
    if not any(claims.env.get(name) for name in ("SPARK_ENGRAM_MODE", "SPARK_ENGRAM_ROWS")):
        return []
    tables = _given(claims.env.get("SPARK_ENGRAM_ROWS", "")) or claims.tables
    told = [match for line in seen.lines for match in [_OWNS.search(line)] if match]
    read = [(match[1], (int(match[2]), int(match[3])) if match[2] else None) for match in told]
    return [_judged(node, read, _differences(tables, read), claims.env.get("SPARK_ENGRAM_DIR") or "the shards", tables)]


def _given(text: str) -> Tables:
    """SPARK_ENGRAM_ROWS, which is LAYER:FIRST:AFTER of each table; empty when it is something else."""
    parts = [part.split(":") for part in text.split(",")]
    if not all(len(part) == 3 and all(word.isdigit() for word in part) for part in parts):
        return {}
    return {layer: (int(first), int(after)) for layer, first, after in parts}


def _differences(tables: Tables, read: Iterable[tuple[str, tuple[int, int] | None]]) -> Iterator[str]:
    """What is wrong with the rows that were told, against those of the rank. A range that the line does not have is not compared."""
    told = dict(read)
    for layer, wanted in tables.items() if told else ():
        if layer not in told:
            yield f"nothing is said of layer {layer}"
        elif told[layer] not in (wanted, None):
            yield f"layer {layer} rows {list(told[layer] or ())}, this rank's are {list(wanted)}"


def _judged(
    node: str, read: Iterable[tuple[str, tuple[int, int] | None]], wrong: Iterable[str], place: str, tables: Tables
) -> Check:
    layers, bad = sorted({layer for layer, _range in read}, key=int), list(wrong)
    good = f"layers {', '.join(layers)} from {place}" if layers else "no line that says where Engram rows are read"
    wanted = ", ".join(f"layer {layer} [{first}, {after})" for layer, (first, after) in tables.items())
    return Check(
        "engine.engram_rows",
        node,
        ok=bool(layers) and not bad,
        found="; ".join(bad) or good,
        expected=f"Engram rows read from {place}" + (f": {wanted}" if wanted else ""),
        cure=_CURE,
    )
