# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a report in the forms that are asked for, and reads and prunes its history. What is written comes from module_utils/report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text
from ansible_collections.gb10.ring.plugins.module_utils.report import document
from ansible_collections.gb10.ring.plugins.module_utils.report.junit import junit
from ansible_collections.gb10.ring.plugins.module_utils.report.page import page


@dataclass(frozen=True)
class Forms:
    """Where a report goes; None: not in this form. history: directory with a copy of each report, of which the newest keep stay."""

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    history: Path | None = None
    keep: int = 30
    warnings_fail: bool = False


def write(report: document.Report, forms: Forms) -> None:
    """Every form, the history last. Raises HostError."""
    text = document.document(report)
    name = document.file_name(report.title, report.created)
    if forms.json:
        write_text(forms.json, text)
    if forms.html:
        earlier = document.parse_earlier(texts(forms.history, report.title, besides=name))
        write_text(forms.html, page(report, earlier[-forms.keep :]))
    if forms.junit:
        write_text(forms.junit, junit(report.title, report.created, report.checks, forms.warnings_fail))
    if forms.history:
        write_text(forms.history / name, text)
        prune(forms.history, report.title, forms.keep)


def texts(history: Path | None, title: str, besides: str = "") -> list[str]:
    """What the kept reports of this title hold; one that cannot be read is left out, as it takes nothing from this report."""
    if history is None or not history.is_dir():
        return []
    names = document.surplus([path.name for path in history.iterdir()], title, keep=0)
    return [text for name in names if name != besides for text in [_text(history / name)] if text]


def _text(path: Path) -> str | None:
    try:
        return read_text(path)
    except HostError:
        return None


def prune(history: Path, title: str, keep: int) -> None:
    """Delete the oldest reports of this title, and nothing else. Raises HostError."""
    for name in document.surplus([path.name for path in history.iterdir()], title, keep):
        try:
            (history / name).unlink(missing_ok=True)
        except OSError as error:
            raise HostError(f"cannot delete {history / name}: {error.strerror}") from error


def benchmark(path: Path | None) -> Mapping[str, Any] | None:
    """The last benchmark as bench.yml wrote it, None when there is none. Raises HostError when the file holds something else."""
    text = read_text(path) if path else None
    if text is None:
        return None
    try:
        held = json.loads(text)
        if isinstance(held["rows"], list) and {"created", "profile"} <= set(held):
            return dict(held)
        found = "no created, profile and rows"
    except (ValueError, KeyError, TypeError) as error:
        found = str(error)
    raise HostError(f"{path} is no benchmark ({found}); run bench.yml again, or delete the file")
