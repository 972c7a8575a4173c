#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_acceptance
short_description: Ask a serving group questions whose answers are known
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    An engine that answers C(/health) may still compute wrongly: with one damaged shard, a wrong kernel or a wrong cache layout it goes
    on answering, and fast. This module asks an OpenAI-compatible server what has one right answer, and compares.
  - Questions carry a word that is new in each run, so that no cache answers them.
  - >-
    When the server is not there, or serves another model, the other questions are not asked, since their answers would tell nothing.
    Does not fail on a failed check. M(gb10.ring.report) judges them.
options:
  node:
    description: Inventory name of the node that serves, which the checks carry.
    type: str
    required: true
  url:
    description: Base URL of the API, without C(/v1).
    type: str
    required: true
  served_model_name:
    description: Name under which the model is served.
    type: str
    required: true
  api_key:
    description: Bearer token, for a server that asks for one.
    type: str
  probes:
    description:
      - What to ask. V(needle), V(image) and V(parity) ask nothing without what they need, which is O(needle_lengths), O(sees) and O(reference).
      - V(health) and V(models) look at C(/health), which llama.cpp's and other servers have too, and at C(/v1/models).
      - V(arithmetic) and V(count) are a few sums, and the numbers from 1 to 20.
      - V(logprobs) looks whether log probabilities are numbers. vLLM answers status 400 when they are not.
      - V(reasoning) looks for markers in the answer and, with O(thinking.enable), for the field with the reasoning.
      - V(tools) wants one call of C(get_weather), V(nonce) one word back.
      - V(streams) asks O(streams) times at once, each for a word of its own, and looks for words of others.
      - V(needle) hides a code in a long text at 10, 50 and 90 per cent of it. V(image) shows three stripes, in an order that changes.
      - V(parity) compares five greedy answers with O(reference).
    type: list
    elements: str
    choices: [health, models, arithmetic, count, logprobs, reasoning, tools, nonce, streams, needle, image, parity]
    default: [health, models, arithmetic, count, logprobs, reasoning, tools, nonce, streams, needle, image, parity]
  streams:
    description: How many streams at once, from 2 to 64.
    type: int
    default: 4
  needle_lengths:
    description: Lengths of the texts in tokens, about. The answer has what the server counted; less than half of it, or no count, is a failure.
    type: list
    elements: int
    default: []
  thinking:
    description:
      - How the model is told to think before it answers, or not to. Every question but V(reasoning) is asked without thinking.
      - Empty when it cannot think.
    type: dict
    default: {}
    suboptions:
      enable:
        description:
          - C(chat_template_kwargs) that make it think; DeepSeek's is C(thinking), with the value true. V(reasoning) then wants the field with it.
          - Empty where no reasoning parser takes the reasoning out of the answer.
        type: dict
        default: {}
      disable:
        description: C(chat_template_kwargs) that keep it from thinking.
        type: dict
        default: {}
      default:
        description: Whether it thinks when it is told neither. Without O(thinking.disable) an answer then gets at least 4096 tokens.
        type: bool
        default: false
  profile:
    description:
      - The checked and completed profile that the group runs, as P(gb10.ring.engine_profile#lookup) gives it. Questions that its flags leave
        without a right answer are not asked, and each is a note of severity C(info) that says why.
      - V(tools) needs a tool call parser. V(logprobs) and V(parity) need log probabilities that vLLM's C(max-logprobs) and C(logprobs-mode)
        allow. Question and answer have to fit C(max-model-len), or SGLang's C(context-length).
      - Without a reasoning parser V(reasoning) asks for no reasoning, and where O(thinking.default) cannot be switched off nothing is asked that
        is judged by all of the answer.
      - Empty when nothing is known of it. Then everything is asked.
    type: dict
    default: {}
  sees:
    description: Whether the group serves a vision tower.
    type: bool
    default: false
  reference:
    description:
      - File on the node with the answers that V(parity) compares with. Empty for none.
      - One that is not there, or holds no recorded answers, is a failed check of V(parity).
    type: path
    default: ""
  record:
    description: Write O(reference) from this run's answers in place of comparing, when everything else that was asked is right.
    type: bool
    default: false
  near_tie:
    description:
      - Where the reference's two best tokens were this close in natural logarithms or closer, the second may come in place of the first
        after a change of kernels.
      - From such a place on an answer is not compared. Any other difference is a failure, and so are answers of which less than a tenth
        of the reference's tokens could be compared.
    type: float
    default: 0.2
  extra:
    description: Put into the body of every request, for settings that a server wants.
    type: dict
    default: {}
  max_tokens:
    description: Most tokens of an answer, the thinking before it too.
    type: int
    default: 512
  timeout_s:
    description: Seconds for one request. Pages such as C(/health) get 10 at most.
    type: int
    default: 120
attributes:
  check_mode:
    description: Asks in check mode too. A reference is not written.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
  idempotent:
    description: Changes nothing, other than the reference that O(record) asks for.
    support: full
seealso:
  - module: gb10.ring.engine_ready
  - module: gb10.ring.engine_benchmark
"""

EXAMPLES = r"""
- name: Ask the group what is known
  gb10.ring.engine_acceptance:
    node: "{{ inventory_hostname }}"
    url: "http://{{ ring_head_address }}:8000"
    served_model_name: DeepSeek-V4.1-Flash-EXL3
    needle_lengths: [32000, 128000]
    reference: /var/lib/gb10-ring/acceptance.json
  when: ring_rank == 0
  register: engine_acceptance_checks
"""

RETURN = r"""
checks:
  description:
    - C(engine.acceptance_NAME) for everything that was asked. A needle's name ends in its length.
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure), and C(asked) and C(answered).
    - What was chosen and not asked because of O(profile) comes last, with severity C(info).
  returned: success
  type: list
  elements: dict
results:
  description: The same in short, with the seconds that the requests took.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: count, ok: true, asked: Count from 1 to 20., expected: "1 to 20, each once", answered: "'1, 2, 3'", seconds: 0.41}
not_asked:
  description: Names of what was not asked, since the server is not there or serves another model.
  returned: success
  type: list
  elements: str
unanswerable:
  description: Why a question was not asked, by its name, because of O(profile).
  returned: success
  type: dict
  sample: {tools: "the profile has no tool-call parser (tool-call-parser)"}
reference_written:
  description: Whether O(reference) was written.
  returned: success
  type: bool
"""

import json
import secrets
import string

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import acceptance, acceptance_long, thinking
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Asking
from ansible_collections.gb10.ring.plugins.module_utils.engine.client import Client
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text

SPEC = {
    "node": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "served_model_name": {"type": "str", "required": True},
    "api_key": {"type": "str", "no_log": True},
    "probes": {"type": "list", "elements": "str", "choices": list(acceptance.NAMES), "default": list(acceptance.NAMES)},
    "streams": {"type": "int", "default": 4},
    "needle_lengths": {"type": "list", "elements": "int", "default": []},
    "thinking": {
        "type": "dict",
        "default": {},
        "options": {
            "enable": {"type": "dict", "default": {}},
            "disable": {"type": "dict", "default": {}},
            "default": {"type": "bool", "default": False},
        },
    },
    "profile": {"type": "dict", "default": {}},
    "sees": {"type": "bool", "default": False},
    "reference": {"type": "path", "default": ""},
    "record": {"type": "bool", "default": False},
    "near_tie": {"type": "float", "default": 0.2},
    "extra": {"type": "dict", "default": {}},
    "max_tokens": {"type": "int", "default": 512, "no_log": False},
    "timeout_s": {"type": "int", "default": 120},
}


def referenced(path):
    """The prompts of a reference file, and why there are none; the other questions are asked all the same."""
    try:
        text = read_text(path)
        held = json.loads(text) if text is not None else None
    except (HostError, ValueError) as error:
        return (), f"{path}: {error}"
    problem = "no such file on this node" if text is None else acceptance_long.reference_problem(held)
    return ((), f"{path}: {problem}") if problem else (tuple(held["prompts"]), "")


def settings_of(options):
    if not 2 <= options["streams"] <= 64:
        raise HostError(f"streams is {options['streams']}, allowed are 2 to 64")
    if options["record"] and not options["reference"]:
        raise HostError("record is true and reference is empty: name the file to write")
    wanted = bool(options["reference"]) and "parity" in options["probes"] and not options["record"]
    reference, unreadable = referenced(options["reference"]) if wanted else ((), "")
    return acceptance.Settings(
        probes=tuple(options["probes"]),
        streams=options["streams"],
        needle_lengths=tuple(options["needle_lengths"]),
        thinking=options["thinking"],
        sees=options["sees"],
        reference=reference,
        unreadable=unreadable,
        record=options["record"],
        near_tie=options["near_tie"],
        profile=options["profile"],
    )


def recorded(options, results, check_mode):
    """Write the reference, unless something that was asked is wrong. Whether the file changes."""
    last = results[-1] if results else None
    if (
        not options["record"]
        or last is None
        or last.probe.name != "parity"
        or not all(one.judged.ok for one in results)
    ):
        return False
    held = {"model": options["served_model_name"], "prompts": acceptance_long.reference_of(last.answers)}
    text = json.dumps(held, indent=1) + "\n"
    changes = read_text(options["reference"]) != text
    if changes and not check_mode:
        write_text(options["reference"], text)
    return changes


def act(options, check_mode):
    settings = settings_of(options)
    nonce = "".join(secrets.choice(string.ascii_lowercase) for _letter in range(10))
    room = thinking.tokens(options["thinking"], options["max_tokens"])
    asking = Asking(options["served_model_name"], nonce, options["extra"], room, thinking.quiet(options["thinking"]))
    client = Client(options["url"], options["timeout_s"], options["api_key"] or "")
    chosen, unasked = acceptance.split(asking, settings)
    results = acceptance.run(chosen, client.send_all)
    written = recorded(options, results, check_mode)
    return {
        "changed": written,
        "checks": [
            *(result.to_check(options["node"]) for result in results),
            *(acceptance.unasked(probe, why, options["node"]) for probe, why in unasked),
        ],
        "results": [result.to_dict() for result in results],
        "not_asked": acceptance.left_out(chosen, results),
        "unanswerable": {probe.name: why for probe, why in unasked},
        "reference_written": written,
    }


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = act(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
