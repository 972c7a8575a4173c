# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to happen so that a node holds a revision, and whether its disk allows it. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..plan import Change, Plan
from ..report.checks import Check
from . import units
from .chunks import Base, best
from .config_edit import CONFIG
from .journal import Begun
from .manifest import PARTIAL, File, Manifest
from .receipt import Entry, Receipt, Stat, wrong_files
from .replacing import Replacing
from .row_state import NAME, Held

#: What is wrong with a file of which the revision has a slice.
SLICE = "a slice"
#: What stands before ``REVISION/PATH`` of a damaged file of another revision: where it lies, seen from the revision.
ELSEWHERE = "../"
#: keep: in the revision. staged: fetched by an earlier run that did not end. link: equal to a file of another revision.
Action = Literal["keep", "staged", "link", "fetch"]


@dataclass(frozen=True)
class Disk:
    """The file system of the checkpoints. available: bytes that a program may still take, without those reserved for root.

    device: its number, 0 when it is not known.
    """

    size: int
    available: int
    reserved: int = 0
    device: int = 0

    @property
    def used(self) -> int:
        # As kubelet counts it for imageGCHighThresholdPercent: what is not available is used.
        return self.size - self.available

    def holds(self, stat: Stat) -> bool:
        """Whether this file lies here: one that does not takes no room, gives none back and cannot be linked to."""
        return not self.device or not stat.device or stat.device == self.device


@dataclass(frozen=True)
class OtherRevision:
    """A complete revision beside the wanted one, and what is on disk of it. chunks: checksums by path, where they are known.

    config: the text of config.json as it was staged, where an edit stands in for it. slices: by path, those whose rows are vouched for.
    """

    receipt: Receipt
    found: Mapping[str, Stat] = field(default_factory=dict)
    chunks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    config: str | None = None
    slices: Mapping[str, Held] = field(default_factory=dict)

    def intact(self, disk: Disk, bad: frozenset[int] = frozenset()) -> Iterator[tuple[Entry, Stat]]:
        """Files of this disk that are as they came and as their receipt has them. bad: inodes known to be damaged."""
        for entry in self.receipt.files:
            stat = self.found.get(entry.path)
            if stat is None or entry.path in self.receipt.derived or stat.inode in bad:
                continue
            if not entry.digest.startswith("etag:") and entry.matches(stat) and disk.holds(stat):
                yield entry, stat


@dataclass(frozen=True)
class Survey:
    """What the node holds. present, staged: files in the revision's and in its staging directory.

    leftovers: bytes allocated in other directories among the stagings, by name. config_text: config.json of the revision.
    damaged: files of the revision whose bytes were read and are wrong, with what was found; those of others as ``../REVISION/PATH``.
    """

    disk: Disk
    receipt: Receipt | None = None
    revision_exists: bool = False
    present: Mapping[str, Stat] = field(default_factory=dict)
    journal: Mapping[str, Entry] = field(default_factory=dict)
    begun: Mapping[str, Begun] = field(default_factory=dict)
    staged: Mapping[str, Stat] = field(default_factory=dict)
    others: tuple[OtherRevision, ...] = ()
    leftovers: Mapping[str, int] = field(default_factory=dict)
    current: str = ""
    config_text: str | None = None
    problem: str = ""
    damaged: Mapping[str, str] = field(default_factory=dict)
    replacing: Replacing | None = None

    @property
    def bad(self) -> frozenset[int]:
        """Inodes of damaged files, which other revisions may share."""
        trees = {other.receipt.revision: other.found for other in self.others}
        found = [self.present.get(path) for path in self.damaged]
        for name in self.damaged:
            revision, _slash, path = name.removeprefix(ELSEWHERE).partition("/")
            found += [trees.get(revision, {}).get(path)] if name.startswith(ELSEWHERE) else []
        return frozenset(stat.inode for stat in found if stat and stat.inode)


@dataclass(frozen=True)
class Step:
    """One file. action: what brings it there. source: ``REVISION/PATH`` to link from. was: what is wrong with the one there.

    text: the file itself, where it is kept beside an edit of it. base: what a file to fetch has in common with an older state of it.
    """

    file: File
    action: Action
    source: str = ""
    was: str = ""
    text: str | None = None
    base: Base = field(default_factory=Base)


@dataclass(frozen=True)
class Staging:
    """Everything between what is and what is wanted. unrecorded: whether the receipt has to be written.

    sliced: paths that are left for slices. left: the same as planned.
    """

    manifest: Manifest
    steps: tuple[Step, ...]
    unrecorded: bool = False
    problems: tuple[str, ...] = ()
    sliced: tuple[str, ...] = ()
    left: tuple[File, ...] = ()

    def spares(self, path: str) -> bool:
        """Whether this is a slice, or what is said of slices: these come and go with their rows alone."""
        return bool(self.sliced) and path.removesuffix(PARTIAL) in {*self.sliced, NAME}

    @property
    def planned(self) -> Manifest:
        """With the files that are left for slices."""
        files = sorted((*self.manifest.files, *self.left), key=lambda file: file.path)
        return Manifest(self.manifest.name, self.manifest.revision, tuple(files))

    @property
    def changed(self) -> bool:
        return self.unrecorded or any(step.action != "keep" for step in self.steps)

    def of(self, action: Action) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action == action)

    def size_of(self, action: Action) -> int:
        return sum(step.file.size for step in self.of(action))

    @property
    def reused(self) -> int:
        """Bytes of files to fetch that older states of them have: they are copied, not fetched."""
        return sum(step.base.bytes for step in self.steps)


def decide(manifest: Manifest, survey: Survey, sliced: Iterable[str] = ()) -> Staging:
    """The staging of this manifest on this node, of which the files in sliced are left for slices."""
    left = tuple(sorted(sliced))
    wanted = manifest.without(left)
    receipt = survey.receipt
    unrecorded = receipt is None or tuple(sorted(receipt.sliced)) != left
    files = tuple(file for file in manifest.files if file.path in left)
    return Staging(wanted, _steps(wanted, survey), unrecorded, tuple(_problems(wanted, survey, left)), left, files)


def _steps(manifest: Manifest, survey: Survey) -> tuple[Step, ...]:
    wrong = {**survey.damaged, **wrong_files(survey.receipt, survey.present)} if survey.receipt else {}
    wrong |= dict.fromkeys(survey.receipt.sliced, SLICE) if survey.receipt else {}
    equal, texts, bad = _linkable(survey), _originals(survey.others), survey.bad
    steps = []
    for file in manifest.files:
        record = survey.journal.get(file.path)
        source = equal.get((file.size, file.digest), "")
        text = None if source or file.path != CONFIG else texts.get((file.size, file.digest))
        action: Action = "fetch"
        if survey.receipt and file.path not in wrong:
            action = "keep"
        elif record and record.digest == file.digest and _came(record, survey.staged.get(file.path), bad):
            action = "staged"
        elif source or text is not None:
            action = "link"
        linked = (source, text) if action == "link" else ("", None)
        base = _base(file, survey) if action == "fetch" and file.chunks else Base()
        steps.append(Step(file, action, linked[0], wrong.get(file.path, ""), linked[1], base))
    return tuple(steps)


def _came(record: Entry, staged: Stat | None, bad: frozenset[int]) -> bool:
    """Whether an earlier run brought this file, and not by a link to one that is known to be damaged."""
    return staged is not None and record.matches(staged) and staged.inode not in bad


def _linkable(survey: Survey) -> dict[tuple[int, str], str]:
    """``REVISION/PATH`` by size and digest, of files of other revisions that can be linked to."""
    equal: dict[tuple[int, str], str] = {}
    for other in survey.others:
        for entry, _stat in other.intact(survey.disk, survey.bad):
            equal.setdefault((entry.size, entry.digest), f"{other.receipt.revision}/{entry.path}")
    return equal


def shared(staging: Staging, survey: Survey) -> dict[str, tuple[str, int]]:
    """Digest and inode, by ``REVISION/PATH``, of files of other revisions that this one gets a name of, or got in an earlier run."""
    inodes = {
        f"{other.receipt.revision}/{path}": stat.inode for other in survey.others for path, stat in other.found.items()
    }
    found = {step.source: (step.file.digest, inodes[step.source]) for step in staging.of("link") if step.source}
    for step in staging.of("staged"):
        inode = survey.staged[step.file.path].inode
        names = [name for name, other in inodes.items() if inode and other == inode]
        found |= dict.fromkeys(names[:1], (step.file.digest, inode))
    return found


def _originals(others: Iterable[OtherRevision]) -> dict[tuple[int, str], str]:
    """config.json as it came, by size and digest, of revisions in which an edit stands in for it."""
    texts = {}
    for other in others:
        entry = next((entry for entry in other.receipt.files if entry.path == CONFIG), None)
        if other.config is not None and entry is not None and len(other.config.encode()) == entry.size:
            texts[entry.size, entry.digest] = other.config
    return texts


def _base(file: File, survey: Survey) -> Base:
    """The older state of the file that has most chunks of it; the active revision's where several have as many."""
    ordered = sorted(survey.others, key=lambda other: other.receipt.revision != survey.current)
    return best(
        file,
        [
            (f"{other.receipt.revision}/{entry.path}", entry.size, other.chunks.get(entry.path, ()))
            for other in ordered
            for entry in _older(other, survey, file.path)
        ],
    )


def _older(other: OtherRevision, survey: Survey, path: str) -> list[Entry]:
    """The state of this file in another revision. One that is replaced in place may have become the partial file already."""
    found = [entry for entry, _stat in other.intact(survey.disk, survey.bad) if entry.path == path]
    moved = survey.replacing is not None and survey.replacing.old == other.receipt.revision and path not in other.found
    if moved and path + PARTIAL in survey.staged:
        found += [entry for entry in other.receipt.files if entry.path == path]
    return found


def _problems(manifest: Manifest, survey: Survey, sliced: Iterable[str]) -> list[str]:
    if survey.problem:
        return [survey.problem]
    if survey.receipt is None:
        if survey.revision_exists and not survey.journal:
            return [
                f"revisions/{manifest.revision} exists, but nothing says that its bytes were ever verified "
                "(no receipt, no journal); move that directory away and run again"
            ]
        return []
    have = {entry.path: (entry.size, entry.digest) for entry in survey.receipt.files}
    want = {file.path: (file.size, file.digest) for file in manifest.files}
    compared = (have.keys() | want.keys()) - {*sliced, *survey.receipt.sliced}
    differing = sorted(path for path in compared if have.get(path) != want.get(path))
    if not differing:
        return []
    return [
        f"revision {manifest.revision} is already staged with other contents ({len(differing)} of {len(want)} files "
        f"differ: {_some(differing)}); a revision never changes: give the new state another name, or leave the name "
        "out and it is computed from the contents"
    ]


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# --- what the user sees -----------------------------------------------------------------------------------------------


def plan_of(staging: Staging, where: str) -> Plan:
    """The plan of this staging as one table. where: path of the revision directory."""
    if not staging.changed:
        return Plan()
    before, after = [], []
    for step in staging.steps:
        row = [step.file.path, str(step.file.size), step.file.digest]
        if step.action in ("keep", "staged"):
            before.append([*row, step.action])
        elif step.was and step.was != "missing":
            before.append([*row, step.was])
        after.append([*row, _doing(step)])
    after += [[path, "", "", "left for a slice"] for path in staging.sliced]
    return Plan((Change(where, _table(before), _table(after), reason(staging)),))


def _doing(step: Step) -> str:
    if step.action == "link":
        return (
            f"link from {step.source.removesuffix('/' + step.file.path)}" if step.source else "write as it was staged"
        )
    shared = (
        f", {units.human(step.base.bytes)} of it from {step.base.source.partition('/')[0]}" if step.base.source else ""
    )
    return step.action + shared


def _table(rows: list[list[str]]) -> str:
    # Widths are those of the longest values there can be, so that equal rows are equal lines in the diff.
    return "".join(f"{path:<40} {size:>15} {digest:<26} {action}\n" for path, size, digest, action in rows)


def reason(staging: Staging) -> str:
    """One line: how many files and bytes are fetched, linked, kept."""
    words = {"fetch": "to fetch", "link": "to link", "staged": "fetched earlier", "keep": "in place"}
    parts = []
    for action in ("fetch", "link", "staged", "keep"):
        steps = staging.of(action)
        if steps:
            parts.append(f"{units.files(len(steps))} {words[action]} ({units.human(staging.size_of(action))})")
    if staging.reused:
        parts.append(f"{units.human(staging.reused)} of what is to fetch copied from older states of the files")
    if staging.sliced:
        parts.append(f"{units.files(len(staging.sliced))} left for slices")
    return ", ".join(parts)


def summary(staging: Staging) -> dict[str, dict[str, int]]:
    """The same as numbers, for a report."""
    actions: tuple[Action, ...] = ("fetch", "link", "staged", "keep")
    shared = sum(1 for step in staging.steps if step.base.source)
    numbers: dict[str, dict[str, int]] = {
        action: {"files": len(staging.of(action)), "bytes": staging.size_of(action)} for action in actions
    }
    return {**numbers, "reused": {"files": shared, "bytes": staging.reused}}


def state_checks(staging: Staging, node: str) -> list[Check]:
    """One check that nothing on the node stands against this revision."""
    problems = staging.problems
    return [
        Check(
            id="checkpoint.revision",
            node=node,
            ok=not problems,
            found="; ".join(problems) or "nothing in the way",
            expected=f"revision {staging.manifest.revision} is absent, staged or resumable",
            cure="as said" if problems else "",
        )
    ]
