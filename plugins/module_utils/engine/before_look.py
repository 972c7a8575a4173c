# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a node before a start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoint import receipt
from ..host import HostError, read_text
from ..memory import cache, platform_look
from ..memory.room import Need
from . import machine, traces_look
from .before_start import Start

SIZES = ("weights_gib", "activations_gib", "graphs_gib", "utilization")
_OPS = "cached_ops/"  # of FlashInfer; what torch compiles is each rank's own


def look(options: Mapping[str, Any], unit: str, dry: bool) -> Start:
    """Raises HostError. dry: a model, an image and memory that are not there yet are what the steps before would bring."""
    spec, proc = options["spec"], Path(options["proc_root"])
    active = machine.unit_state(unit).running
    container = spec.get("container") or {}
    found = traces_look.look(proc, options["run_root"], spec, options["nvidia_smi"])
    return Start(
        node=options["node"],
        unit=unit,
        active=active,
        restart=options["restart"],
        found=replace(found, own_containers=traces_look.own_containers() if active else ()),
        model=str(spec["model"]["path"]),
        missing=() if dry else missing(Path(spec["model"]["root"]), Path(spec["model"]["path"])),
        image_name=str(container.get("reference") or container.get("image") or ""),
        image="" if dry else traces_look.image_problem(spec),
        memory="" if active or dry else memory_problem(options, proc),
        kernels=None
        if spec.get("kernels_from") == "image"
        else tuple(path for path in traces_look.kernels(spec) if _OPS in path),
    )


def memory_problem(options: Mapping[str, Any], proc: Path) -> str:
    """Why the engine does not fit, by the arithmetic of page_cache; the page cache stays."""
    need = need_of(options)
    patience = float(options["memory_wait_s"])
    return cache.make_room(proc, need, False, patience, lambda: platform_look.processes(proc.parent)).refusal


def need_of(options: Mapping[str, Any]) -> Need:
    """What the options say, and for those that are left out the specification."""
    expected = options["spec"].get("expected", {}).get("memory", {})
    given = {name: options[name] for name in SIZES if options.get(name) is not None}
    return Need(**{name: given.get(name, expected.get(name, 0.0)) for name in SIZES})


def missing(root: Path, place: Path) -> tuple[str, ...]:
    """Files of the revision that are not there: those of its receipt, else those of its weight index."""
    try:
        text = read_text(root / "receipts" / f"{place.name}.json")
        if text:
            held = receipt.parse(text, str(root / "receipts" / f"{place.name}.json"))
            names = [entry.path for entry in held.files if entry.path not in held.sliced]
        else:
            index = json.loads(read_text(place / "model.safetensors.index.json") or "{}")
            names = ["config.json", *sorted(set(index.get("weight_map", {}).values()))]
    except (receipt.ReceiptError, ValueError, AttributeError) as error:
        raise HostError(f"cannot tell which files {place} has: {error}") from error
    return tuple(name for name in names if not (place / name).is_file())
