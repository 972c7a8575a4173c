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
from ansible_collections.gb10.ring.plugins.module_utils.report import document, page_bench
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


@dataclass(frozen=True)
class Written:
    """files: that hold the report now, without the history's. problems: why others do not, one each."""

    files: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()


def write(report: document.Report, forms: Forms) -> Written:
    """Every form, the history last. One that cannot be written takes nothing from the others."""
    text = document.document(report)
    name = document.file_name(report.title, report.created)
    files: list[Path] = []
    problems: list[str] = []
    kept = texts(forms.history, report.title, besides=name) if forms.html else []
    made = (
        (forms.json, lambda: text),
        (forms.html, lambda: page(report, document.parse_earlier(kept)[-forms.keep :])),
        (forms.junit, lambda: junit(report.title, report.created, report.checks, forms.warnings_fail)),
    )
    for path, content in made:
        if path:
            try:
                write_text(path, content())
                files.append(path)
            except HostError as error:
                problems.append(str(error))
    if forms.history:
        try:
            write_text(forms.history / name, text)
            prune(forms.history, report.title, forms.keep)
        except HostError as error:
            problems.append(str(error))
    return Written(tuple(files), tuple(problems))


def texts(history: Path | None, title: str, besides: str = "") -> list[str]:
    """What the kept reports of this title hold; one that cannot be read is left out, as it takes nothing from this report."""
    try:
        names = document.surplus(_names(history), title, keep=0) if history and history.is_dir() else []
    except (HostError, OSError):
        return []
    return [text for name in names if name != besides for text in [_text(history / name)] if text]


def _names(history: Path) -> list[str]:
    try:
        return [path.name for path in history.iterdir()]
    except OSError as error:
        raise HostError(f"cannot read {history}: {error.strerror}") from error


def _text(path: Path) -> str | None:
    try:
        return read_text(path)
    except HostError:
        return None


def prune(history: Path, title: str, keep: int) -> None:
    """Delete the oldest reports of this title, and nothing else. Raises HostError."""
    for name in document.surplus(_names(history), title, keep):
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
        found = page_bench.problem(held)
    except ValueError as error:
        found = str(error)
    if not found:
        return dict(held)
    raise HostError(f"{path} is no benchmark ({found}); run bench.yml again, or delete the file")
