# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to happen so that a node holds its Engram rows, file by file. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..plan import Change, Plan
from ..report.checks import Check
from . import chunks, row_measure, spans, units
from .budget import Budget, Reclaimable, budget_check
from .manifest import PARTIAL, File
from .receipt import Stat
from .row_plan import RowPlan, Target
from .row_probe import rows_string
from .row_state import NAME, RowState, Work, allocation_problem, content_key, differs, stale, work
from .row_survey import RowSurvey, Slices

#: Algorithm of the checksums of rows. Nodes always have awscrt when they fetch some.
CHECK = "crc64nvme"
#: keep: as wanted. move: the file there gets other rows. copy: the rows that it has are taken over into a new file, since somebody else has
#: it too (a process, or another revision). link: another revision has the same slice. resume: go on with a partial file. new: begin.
Way = Literal["keep", "move", "copy", "link", "resume", "new"]


@dataclass(frozen=True)
class RowStep:
    """One file. before: where its rows are that stay, for move, copy and link."""

    target: Target
    file: File
    work: Work
    way: Way
    before: Slices | None = None


@dataclass(frozen=True)
class RowStaging:
    """index: the index to copy beside the slices, where it is not there. record: why engram-local.json is written anew, empty when it stays."""

    plan: RowPlan
    revision: str
    steps: tuple[RowStep, ...]
    index: File | None = None
    record: str = ""
    stale: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether rows change, or files: then engram-local.json may not say anything meanwhile."""
        return any(step.way != "keep" for step in self.steps) or self.index is not None

    @property
    def changed(self) -> bool:
        return self.moves or bool(self.record) or bool(self.stale)

    @property
    def fetch_bytes(self) -> int:
        """Bytes that have to come from elsewhere, less those of an earlier run that did not end."""
        index = self.index.size if self.index else 0
        return index + sum(spans.total(step.work.fetch) for step in self.steps if step.way not in ("keep", "link"))


def decide(plan: RowPlan, revision: str, files: Mapping[str, File], survey: RowSurvey) -> RowStaging:
    """files: as planned, by path."""
    if plan.placement == "full":
        return RowStaging(plan, revision, ())
    steps = tuple(_step(target, files[target.path], survey, plan, revision) for target in plan.targets)
    state = survey.here.state
    record = differs(plan, state, revision) or ("its files change" if any(step.way != "keep" for step in steps) else "")
    problems = [survey.problem, *_foreign(plan, survey)]
    return RowStaging(
        plan,
        revision,
        steps,
        _index(plan, files, survey),
        record,
        tuple(path for known in survey.here.states for path in stale(plan, known)),
        tuple(problem for problem in problems if problem),
    )


def _foreign(plan: RowPlan, survey: RowSurvey) -> list[str]:
    """Files under the names of slices that are none of ours, as whole shards are, and all in a directory that somebody named: they may
    be somebody's only copy."""
    if plan.placement != "directory" or survey.problem:
        return []
    ours = {*survey.begun, *survey.ours, *(file.path for state in survey.here.states for file in state.files)}
    found = [target.path for target in plan.targets if target.path in survey.here.found and target.path not in ours]
    if not found:
        return []
    return [
        f"{', '.join(found)} in {survey.here.directory} were not brought by gb10.ring and would be replaced; name another directory "
        f"(checkpoint_engram_directory), move them away, or delete them where they are slices whose {NAME} was deleted. Whole shards are "
        "used from checkpoint_engram_whole_directories"
    ]


def _index(plan: RowPlan, files: Mapping[str, File], survey: RowSurvey) -> File | None:
    """A copy of the index is told by its bytes, as engram-local.json has them, and by what they were copied from."""
    if not plan.index_path:
        return None
    path = plan.index_path
    file, stat, state = files[path], survey.here.found.get(path), survey.here.of(path)
    if stat is None or state is None or stat.size != file.size or state.digests.get(path) != file.digest:
        return file
    content = state.digests.get(content_key(path))
    return None if content and content == survey.content else file


def _step(target: Target, file: File, survey: RowSurvey, plan: RowPlan, revision: str) -> RowStep:
    here = _work(plan, target, file, survey.here, survey, revision=revision)
    if not here.changed:
        return RowStep(target, file, here, "keep", survey.here)
    stat = survey.here.found.get(target.path)
    if not here.fresh:
        shared = stat is None or stat.links > 1 or target.path in survey.busy
        return RowStep(target, file, here, "copy" if shared else "move", survey.here)
    if _resumable(target, file, survey):
        return RowStep(target, file, here, "resume")
    return _from_another(target, file, survey, plan, revision) or RowStep(target, file, here, "new")


def _from_another(target: Target, file: File, survey: RowSurvey, plan: RowPlan, revision: str) -> RowStep | None:
    """What the slices of other revisions have of the wanted rows: a link to one that has all, else a copy of the one with most."""
    best: RowStep | None = None
    for other in survey.others:
        there = _work(plan, target, file, other, survey, revision=revision)
        if not there.changed:
            return RowStep(target, file, there, "link", other)
        if not there.fresh and (best is None or spans.total(there.keep) > spans.total(best.work.keep)):
            best = RowStep(target, file, replace(there, punch=()), "copy", other)
    return best


def _work(plan: RowPlan, target: Target, file: File, slices: Slices, survey: RowSurvey, *, revision: str) -> Work:
    wanted = replace(plan, targets=(target,))
    shared = {target.path: chunks.alike(file, file.size, slices.chunks.get(file.path, ()))}
    digests = {target.path: file.digest}
    (found,) = work(wanted, slices.of(target.path), slices.found, digests, shared, revision=revision)
    found = _undamaged(target, found, survey.wrong(slices.directory, target.path))
    state = slices.of(target.path)
    found = _recorded(target, found, state.digests if state else {})
    stat = slices.found.get(target.path)
    if found.changed or stat is None:
        return found
    problem = allocation_problem(target, stat.allocated, survey.block)
    return Work(target.path, target.size, fetch=target.spans, fresh=True, why=problem) if problem else found


def _undamaged(target: Target, found: Work, wrong: frozenset[str]) -> Work:
    """The same without the bytes that were read again and are not as recorded. wrong: see RowSurvey.wrong."""
    if found.fresh or not wrong:
        return found
    runs = row_measure.runs(target, dict.fromkeys(wrong, ""))
    bad = found.keep if target.path in wrong else spans.merged((run.part.offset, run.part.end) for run in runs)
    return _without(found, bad, "not what was verified any more")


def _recorded(target: Target, found: Work, digests: Mapping[str, str]) -> Work:
    """The same without the bytes that no digest was recorded of: they may be anything. digests: by Extent.key."""
    if found.fresh:
        return found
    known = {key: digest for key, digest in digests.items() if digest}
    runs = row_measure.runs(target, known)
    found = _without(
        found,
        spans.without(found.keep, ((run.part.offset, run.part.end) for run in runs)),
        "no digest was recorded of some of it",
    )
    if found.changed:
        return found  # what stays is held to the digests of the rows that it was part of
    return _without(
        found,
        spans.merged(extent.span for extent in target.extents if extent.key not in known),
        "no digest was recorded of some of it",
    )


def _without(found: Work, bad: tuple[spans.Span, ...], why: str) -> Work:
    """The same with these bytes to fetch where they would stay."""
    keep, lost = spans.without(found.keep, bad), spans.common(found.keep, bad)
    if not lost:
        return found
    fetch = spans.merged((*found.fetch, *lost))
    return replace(found, keep=keep, fetch=fetch, fresh=not keep, why=why)


def _resumable(target: Target, file: File, survey: RowSurvey) -> bool:
    """Whether an earlier run, which has removed engram-local.json by then, left rows of this object."""
    begun, found = survey.begun.get(target.path), survey.here.found
    if begun is None or not begun.fits(file, CHECK):
        return False
    stat = found.get(target.path + PARTIAL)
    if stat is not None:
        return stat.links == 1  # else it was about to become a link to another revision's
    # It ended before its first rename, or after its last.
    stat = found.get(target.path)
    return stat is not None and survey.here.state is None and stat.links == 1 and target.path not in survey.busy


def staying_files(staging: RowStaging) -> dict[tuple[Path, str], Target]:
    """Files whose rows count as they are: by directory and path what is wanted of them."""
    steps = [step for step in staging.steps if step.way in ("keep", "link")]
    return {(step.before.directory, step.target.path): step.target for step in steps if step.before}


# --- room -------------------------------------------------------------------------------------------------------------


def bytes_needed(staging: RowStaging, survey: RowSurvey) -> int:
    """What the disk has to give. A file that is moved or that nobody can use any more gives its own blocks back first."""
    needed = staging.index.size if staging.index else 0
    for step in staging.steps:
        if step.way in ("keep", "link"):
            continue
        whole = step.target.allocated(survey.block)
        there = [survey.here.found.get(step.target.path + PARTIAL)]
        # What a process has open gives nothing back as long as it has.
        if step.way in ("move", "resume") or (dropped(step, survey) and step.target.path not in survey.busy):
            there.append(survey.here.found.get(step.target.path))
        needed += max(0, whole - sum(stat.allocated for stat in there if stat and stat.links == 1))
    return needed


def dropped(step: RowStep, survey: RowSurvey) -> bool:
    """Whether the file in the place of a new one is a slice of ours that holds nothing of use."""
    path = step.target.path
    state, stat = survey.here.of(path), survey.here.found.get(path)
    ours = path in survey.ours or (state is not None and any(file.path == path for file in state.files))
    return step.way in ("new", "link") and ours and stat is not None and stat.allocated < stat.size


def linked_paths(staging: RowStaging) -> frozenset[str]:
    """``REVISION/PATH`` of the slices that get another name: deleting that revision would give nothing back of them."""
    return frozenset(
        f"{step.before.directory.name}/{step.target.path}"
        for step in staging.steps
        if step.way == "link" and step.before
    )


def budget_of(staging: RowStaging, survey: RowSurvey, ceiling_percent: int, beside: Reclaimable) -> Budget:
    """beside: what could be deleted of the checkpoint on this disk."""
    return Budget(survey.disk, bytes_needed(staging, survey), 0, beside, ceiling_percent)


def room_check(found: Budget, node: str) -> Check:
    return replace(budget_check(found, node), id="checkpoint.engram_budget")


# --- what the user sees -----------------------------------------------------------------------------------------------


def plan_of(staging: RowStaging, survey: RowSurvey) -> Plan:
    """One change a file, and one for what is said of them."""
    if not staging.changed:
        return Plan()
    directory = survey.here.directory
    changes = [
        Change(str(directory / step.target.path), _before(step, survey), _after(step), _why(step))
        for step in staging.steps
        if step.way != "keep"
    ]
    if staging.index:
        path = str(directory / staging.index.path)
        changes.append(Change(path, "", f"{staging.index.size} bytes {staging.index.digest}\n", "the whole index"))
    changes += [
        Change(str(directory / path), "a slice\n", "", "not of this checkpoint's tables") for path in staging.stale
    ]
    if staging.record:
        before = _said(survey.here.state)
        changes.append(Change(str(directory / NAME), before, _wanted(staging), staging.record))
    return Plan(tuple(changes))


def _before(step: RowStep, survey: RowSurvey) -> str:
    stat: Stat | None = survey.here.found.get(step.target.path)
    if stat is None:
        return ""
    state = survey.here.of(step.target.path)
    held = next((file for file in state.files if file.path == step.target.path), None) if state else None
    return _lines(held.spans) if held else f"{stat.size} bytes, {stat.allocated} allocated\n"


def _after(step: RowStep) -> str:
    return _lines(step.target.spans)


def _lines(found: tuple[spans.Span, ...]) -> str:
    return "".join(f"bytes {low}-{high - 1}\n" for low, high in found)


def _why(step: RowStep) -> str:
    fetched, kept = spans.total(step.work.fetch), spans.total(step.work.keep)
    if step.way == "link" and step.before:
        return f"link to {step.before.directory / step.target.path}"
    parts = [f"{units.human(fetched)} to fetch"] if fetched else []
    parts += [f"{units.human(kept)} stay"] if kept else []
    parts += [f"{units.human(spans.total(step.work.punch))} given back"] if step.work.punch else []
    return ", ".join([*([step.work.why] if step.work.why else []), *parts])


def _said(state: RowState | None) -> str:
    if state is None:
        return ""
    return _record(state.rule, state.tp_size, state.rank, state.revision, state.layers)


def _wanted(staging: RowStaging) -> str:
    plan = staging.plan
    return _record(plan.rule, plan.tp, plan.rank, staging.revision, plan.layers)


def _record(rule: str, tp: int, rank: int, revision: str, layers: Mapping[str, tuple[int, int]]) -> str:
    rows = "".join(f"layer {layer}: rows [{low}, {high})\n" for layer, (low, high) in layers.items())
    return f"rule {rule}, rank {rank} of {tp}, revision {revision}\n{rows}"


def summary(staging: RowStaging) -> dict[str, Any]:
    """Files and bytes by what happens to them."""
    moving = [step for step in staging.steps if step.way != "keep"]
    return {
        "fetch": {"files": len(moving) + bool(staging.index), "bytes": staging.fetch_bytes},
        "keep_bytes": sum(spans.total(step.work.keep) for step in staging.steps),
        "punch_bytes": sum(spans.total(step.work.punch) for step in moving if step.way == "move"),
        "link": sum(step.way == "link" for step in staging.steps),
        "paths": [step.target.path for step in moving] + ([staging.index.path] if staging.index else []),
    }


def environment(plan: RowPlan, directory: Path, model: Path) -> dict[str, str]:
    """What an engine has to be told to read these rows: vLLM with the DSV41 patches, or SGLang with the Spark overlay."""
    sliced = plan.placement != "full"
    if plan.rule == "vllm":
        return {"DSV41_ENGRAM_DISK": "1", **({"DSV41_ENGRAM_DIR": str(directory)} if sliced else {})}
    told = {"SPARK_ENGRAM_DIR": str(directory if sliced else model)}
    return {**told, "SPARK_ENGRAM_ROWS": rows_string(plan.layers)}
