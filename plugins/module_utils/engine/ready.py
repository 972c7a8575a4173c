# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a rank is ready: what was seen of its unit and of the head's API, turned into checks and into "wait on or not"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..report.checks import Check
from . import thinking
from .diagnosis import LAST_LINES
from .group import FAILED, STOPPED, STOPPING
from .service import UnitState

QUESTION = "What is 17*19? Answer with the number only."
ANSWER = "323"


@dataclass(frozen=True)
class Reply:
    """An HTTP answer. status 0: none came, and error says why."""

    status: int = 0
    body: str = ""
    error: str = ""

    def text(self) -> str:
        if not self.status:
            return self.error or "no answer"
        return f"status {self.status}"


@dataclass(frozen=True)
class Look:
    """What one look at a rank gave. health is None where the rank does not ask the head, models and chat except on rank 0.

    line: what the log of this run has to have before the rank is ready, empty for nothing; lined: whether it has it.
    ending: of a rank that ended, why, as its supervisor knows; by_group: because another one did.
    """

    unit: UnitState
    health: Reply | None = None
    models: Reply | None = None
    chat: Reply | None = None
    wanted_hash: str = ""
    journal: tuple[str, ...] = ()
    line: str = ""
    lined: bool = False
    ending: str = ""
    by_group: bool = False


def ended(look: Look) -> bool:
    """Whether the wait would be in vain: the rank ended by itself, or was stopped because another one did."""
    return look.unit.failed or look.unit.active == "inactive"


def settled(look: Look) -> bool:
    """Whether to stop waiting."""
    return ended(look) or ready(look)


def ready(look: Look) -> bool:
    """Whether the unit runs, the head answers, as far as this rank asks, and the log says so, where that is known."""
    return answers(look) and (look.lined or not look.line)


def answers(look: Look) -> bool:
    """Whether the unit runs and the head answers, as far as this rank asks."""
    if not look.unit.running:
        return False
    return all(reply is None or reply.status == 200 for reply in (look.health, look.models))


def served(models: Reply | None) -> tuple[str, ...]:
    """Names in a /v1/models answer; none when it is not one."""
    try:
        return tuple(str(entry["id"]) for entry in json.loads(models.body)["data"]) if models else ()
    except (ValueError, KeyError, TypeError):
        return ()


def said_in(chat: Reply) -> tuple[str, str]:
    """The text of a chat completion, and the reasoning before it; empty where there is none."""
    try:
        message = json.loads(chat.body)["choices"][0]["message"]
    except (ValueError, KeyError, TypeError, IndexError):
        return "", ""
    return thinking.content(message), thinking.reasoning(message)


def right(chat: Reply) -> bool:
    """Whether it is the known answer. What was thought before it does not count."""
    return chat.status == 200 and ANSWER in said_in(chat)[0]


def checks(node: str, unit: str, url: str, model_name: str, look: Look) -> list[Check]:
    """The checks of one rank; those of the API on rank 0 only."""
    result = [_unit_check(node, unit, look), *_config_check(node, look)]
    if look.models is not None:
        result.append(_health_check(node, unit, url, model_name, look))
    if look.chat is not None:
        result.append(_chat_check(node, url, look.chat))
    return result


def log_check(node: str, unit: str, lines: Sequence[str], wanted: Sequence[Mapping[str, Any]]) -> Check:
    """Whether the log of this run has what a healthy rank's has, and lacks what it must not have.

    A line that must not be there is an error, and one that is missing where the profile requires it; others only show at some settings.
    """
    missed = [line for line in wanted if any(line["text"] in said for said in lines) is not (line["want"] == "present")]
    wrong = [f"{'no ' if line['want'] == 'present' else ''}{line['text']!r} ({line['means']})" for line in missed]
    grave = any(line["want"] == "absent" or line.get("required") for line in missed)
    return Check(
        id="engine.log",
        node=node,
        ok=not wrong,
        found="; ".join(wrong) or "every line that a healthy rank has",
        expected="; ".join(f"{line['text']!r} {line['want']}" for line in wanted),
        cure=f"it serves, though not as it should: `journalctl -u {unit}` on {node}, and docs/engine.md",
        severity="error" if grave else "warning",
    )


def with_ending(look: Look, rank: Mapping[str, Any]) -> Look:
    """With what the supervisor says of its own rank, where that did end. rank: empty when the supervisor says nothing."""
    why = str(rank.get("why") or "")
    if not why or not ended(look) or rank.get("state") not in (STOPPING, STOPPED, FAILED):
        return look
    if rank.get("by") == "group":
        return replace(look, ending=f"ended with its group: {why}", by_group=True)
    return replace(look, ending=f"stopped by {rank['by']}: {why}" if rank.get("by") else why)


def _unit_check(node: str, unit: str, look: Look) -> Check:
    if look.by_group:
        cure = "see to the rank that ended first, which is named here, then run the engine role"
    else:
        cure = f"run the engine role; `journalctl -u {unit}` on {node} says why it ended"
    return Check(
        id="engine.unit",
        node=node,
        ok=look.unit.running,
        found=f"{look.unit.text()}; {look.ending}" if look.ending else look.unit.text(),
        expected="active (running)",
        cure=_with_journal(cure, look.journal),
    )


def _config_check(node: str, look: Look) -> list[Check]:
    """Whether the running process was started from the unit as it is written; nothing to say when it does not run."""
    if not look.unit.running or not look.wanted_hash:
        return []
    same = look.unit.hash == look.wanted_hash
    return [
        Check(
            id="engine.config",
            node=node,
            ok=same,
            found=f"running configuration {look.unit.hash or 'unknown'}",
            expected=f"configuration {look.wanted_hash}, as the unit is written",
            cure="run the engine role: it restarts the group",
            severity="warning",
        )
    ]


def _health_check(node: str, unit: str, url: str, model_name: str, look: Look) -> Check:
    health, models = look.health or Reply(error="not asked"), look.models or Reply(error="not asked")
    names = served(models)
    found = f"/health {health.text()}, /v1/models {models.text()}"
    if names:
        found += f" with {', '.join(names)}"
    if look.line:
        found += f", its log {'has' if look.lined else 'lacks'} {look.line!r}"
    unsaid = (
        f"it answers, and `journalctl -u {unit}` has not said that it is ready: a longer engine_ready_timeout_s, or as ready_line of the profile "
        "what this engine prints, an empty text for nothing"
    )
    waits = f"the head answers once every rank has joined: look for the rank whose engine.unit failed, then `journalctl -u {unit}` here"
    other = f"something else answers at {url}, or another profile runs: see what listens there, set engine_port, or run the engine role"
    return Check(
        id="engine.health",
        node=node,
        ok=health.status == 200 and models.status == 200 and model_name in names and (look.lined or not look.line),
        found=f"{url}: {found}",
        expected=f"/health status 200, /v1/models with {model_name}{f', {look.line!r} in the log of this run' if look.line else ''}",
        cure=_with_journal(
            _why_not(look, bool(names) and model_name not in names, (other, unsaid, waits)),
            look.journal if look.unit.running else (),  # else engine.unit carries it
        ),
    )


def _why_not(look: Look, other: bool, cures: tuple[str, str, str]) -> str:
    """Of the cures for another model, for an engine that has not said that it is ready, and for one that does not answer yet."""
    if other:
        return cures[0]
    return cures[1] if answers(look) else cures[2]


def _chat_check(node: str, url: str, chat: Reply) -> Check:
    said, thought = said_in(chat)
    only = f", only reasoning {thought[:80]!r}" if thought and not said else ""
    wrong = "the engine runs but answers wrongly: compare the checkpoint (checkpoint.files) and the engine's build on all nodes"
    thinks = "it thinks where it was told not to: set `thinking` of the profile to what its chat template knows (docs/engine.md)"
    return Check(
        id="engine.chat",
        node=node,
        ok=right(chat),
        found=f"{url}/v1/chat/completions {chat.text()}, answer {said[:80]!r}{only}",
        expected=f"an answer with {ANSWER} to {QUESTION!r}",
        cure=thinks if only else wrong,
    )


def _with_journal(cure: str, journal: Sequence[str]) -> str:
    if not journal:
        return cure
    return f"{cure}. Its last lines:\n" + "\n".join(f"    {line}" for line in journal[-LAST_LINES:])


def outcome(look: Look) -> str:
    """``ready``, ``ended`` (the engine ended by itself), or ``waiting``."""
    if ready(look):
        return "ready"
    return "ended" if ended(look) else "waiting"


def with_chat(look: Look, chat: Reply) -> Look:
    return replace(look, chat=chat)
