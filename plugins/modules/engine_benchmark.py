#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_benchmark
short_description: Measure prefill and decode of a serving group
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Prefill is the time to answer with one token, at each of O(prefill_lengths). Decode is the time from the first token of any stream to
    the end of the last, for O(decode_tokens) tokens, of prose and of code, at each of O(concurrency).
  - >-
    Every prompt begins with a word of its own, so that no prefix cache holds its start. A run in which the server took tokens from its
    cache nonetheless (by C(usage) or C(/metrics)) is no measurement, and voids its row, as does one that ended early.
  - Tokens are those that the server counts in C(usage). Events of a stream are not counted, since one may hold several tokens.
  - >-
    A measurement is warmed up by one run that does not count, then made O(repeats) times. Medians are shown beside the numbers that the
    profile's authors published, where they did.
  - The group is busy meanwhile. Run it on a node that is not the head, since client and head share its processor.
options:
  node:
    description: Inventory name of this node, which the checks carry.
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
  profile:
    description: Name of the engine's profile, by which the published numbers are found.
    type: str
    default: ""
  api_key:
    description: Bearer token, for a server that asks for one.
    type: str
  thinking:
    description:
      - How the model is told to think before it answers, or not to. It is asked without thinking, where that is possible, since the
        published numbers are of prose and code.
      - Whether it thought is in C(conditions.thinking) of RV(document), V(off), V(on) or V(unknown), and what every request had of
        C(chat_template_kwargs) beside it. O(extra) can have others.
      - Empty when it cannot think.
    type: dict
    default: {}
    suboptions:
      enable:
        description: C(chat_template_kwargs) that make it think. They are not sent, and tell what those of O(extra) mean.
        type: dict
        default: {}
      disable:
        description: C(chat_template_kwargs) that keep it from thinking.
        type: dict
        default: {}
      default:
        description: Whether it thinks when it is told neither.
        type: bool
        default: false
  prefill_lengths:
    description: Lengths of the prompts in tokens, about. Rows have what the server counted.
    type: list
    elements: int
    default: [3400, 12000, 50000]
  decode_tokens:
    description: Tokens of an answer. The server is told to go on beyond the end of the text (C(ignore_eos)).
    type: int
    default: 300
  decode_tasks:
    description: What is written. A model that drafts ahead is much faster on code.
    type: list
    elements: str
    choices: [prose, code]
    default: [prose, code]
  concurrency:
    description: Streams at once, one measurement each, from 1 to 64.
    type: list
    elements: int
    default: [1, 4]
  repeats:
    description: Runs of each measurement that count, at least 1.
    type: int
    default: 3
  slow:
    description: Part of a published number below which a measurement is a warning.
    type: float
    default: 0.8
  conditions:
    description: What else the figures depend on, such as revision, image and firmware. It is returned in RV(document).
    type: dict
    default: {}
  record:
    description: What the engine role wrote of the engine. When it is there, its revision, arguments and environment go into RV(document).
    type: path
    default: /etc/gb10-ring/engine.json
  extra:
    description: Put into the body of every request, for settings that a server wants.
    type: dict
    default: {}
  timeout_s:
    description: Seconds for one request.
    type: int
    default: 600
attributes:
  check_mode:
    description: Skipped in check mode, since it loads the group.
    support: none
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Reports no change; every call measures anew.
    support: full
seealso:
  - module: gb10.ring.engine_acceptance
"""

EXAMPLES = r"""
- name: Measure the group from its last worker
  gb10.ring.engine_benchmark:
    node: "{{ inventory_hostname }}"
    url: "http://{{ ring_head_address }}:8000"
    served_model_name: DeepSeek-V4.1-Flash-EXL3
    profile: vllm-tp3-ring-exl3
    concurrency: [1, 2, 4]
    thinking: {disable: {thinking: false}, default: true}
  when: ring_rank == ring_size - 1
  register: measured
"""

RETURN = r"""
checks:
  description:
    - C(engine.benchmark) for each measurement, a warning when it has no result or is slower than O(slow) of what was published.
    - Each has C(id), C(node), C(ok), C(severity), C(found), C(expected), C(cure).
  returned: success
  type: list
  elements: dict
document:
  description:
    - The measurements in C(rows), with C(created), C(profile), C(conditions), what the server told of its version, how hits of the prefix
      cache were looked for, and the share of draft tokens that were accepted meanwhile.
    - C(conditions) are those of O(conditions), with C(client_kernel), C(thinking), C(chat_template_kwargs), and what O(record) says.
  returned: success
  type: dict
  sample:
    created: "2026-11-30T03:00:00+00:00"
    profile: vllm-tp3-ring-exl3
    conditions: {client_kernel: 6.17.0-1008-nvidia, thinking: "off", chat_template_kwargs: {thinking: false}}
    rows:
      - {kind: prefill, tokens: 3391, concurrency: 1, median: 1101.3, low: 1098.0, high: 1104.1, unit: tok/s, samples: 3,
         published: 1094.0, published_tokens: 3400, source: LLMKube, note: ""}
csv:
  description: The rows as CSV, with a line of names.
  returned: success
  type: str
"""

import datetime
import json
import platform
import secrets
import string

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils.engine import bench, bench_run, thinking
from ansible_collections.gb10.ring.plugins.module_utils.engine.asking import Asking
from ansible_collections.gb10.ring.plugins.module_utils.engine.client import Client
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text

SPEC = {
    "node": {"type": "str", "required": True},
    "url": {"type": "str", "required": True},
    "served_model_name": {"type": "str", "required": True},
    "profile": {"type": "str", "default": ""},
    "api_key": {"type": "str", "no_log": True},
    "thinking": {
        "type": "dict",
        "default": {},
        "options": {
            "enable": {"type": "dict", "default": {}},
            "disable": {"type": "dict", "default": {}},
            "default": {"type": "bool", "default": False},
        },
    },
    "prefill_lengths": {"type": "list", "elements": "int", "default": [3400, 12000, 50000]},
    "decode_tokens": {"type": "int", "default": 300, "no_log": False},
    "decode_tasks": {"type": "list", "elements": "str", "choices": ["prose", "code"], "default": ["prose", "code"]},
    "concurrency": {"type": "list", "elements": "int", "default": [1, 4]},
    "repeats": {"type": "int", "default": 3},
    "slow": {"type": "float", "default": 0.8},
    "conditions": {"type": "dict", "default": {}},
    "record": {"type": "path", "default": "/etc/gb10-ring/engine.json"},
    "extra": {"type": "dict", "default": {}},
    "timeout_s": {"type": "int", "default": 600},
}
RECORDED = ("hash", "image", "model", "argv", "env")


def settings_of(options):
    return bench.Settings(
        prefill_lengths=tuple(options["prefill_lengths"]),
        decode_tokens=options["decode_tokens"],
        decode_tasks=tuple(options["decode_tasks"]),
        concurrency=tuple(options["concurrency"]),
        repeats=options["repeats"],
        profile=options["profile"],
    )


def conditions(options, asking):
    """The user's, the client's kernel, whether the model thought, and what the engine's record says of how it runs."""
    sent = asking.body("").get(thinking.KWARGS, {})
    thought = {"thinking": thinking.stated(options["thinking"], sent), thinking.KWARGS: sent}
    found = {"client_kernel": platform.release(), **options["conditions"], **thought}
    try:
        held = json.loads(read_text(options["record"]) or "{}")
    except ValueError:
        held = {}
    if isinstance(held, dict):
        found.update({f"engine_{name}": held[name] for name in RECORDED if name in held})
    return found


def act(options):
    settings = settings_of(options)
    nonce = "".join(secrets.choice(string.ascii_lowercase) for _letter in range(10))
    quiet = thinking.quiet(options["thinking"])
    asking = Asking(options["served_model_name"], nonce, options["extra"], template=quiet)
    found = bench_run.measure(settings, asking, Client(options["url"], options["timeout_s"], options["api_key"] or ""))
    document = {
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "profile": options["profile"] or options["served_model_name"],
        "url": options["url"],
        "client": options["node"],
        "conditions": conditions(options, asking),
        "server": found.server,
        "cache_told_by": found.cache_told_by,
        "speculation": found.speculation,
        "rows": [row.to_dict() for row in found.rows],
    }
    checks = bench.checks(options["node"], found.rows, options["slow"])
    return {"checks": checks, "document": document, "csv": bench.table(found.rows)}


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=False)
    problem = bench.problem(settings_of(module.params))
    if problem:
        module.fail_json(msg=f"{module.params['node']}: {problem}")
    try:
        result = act(module.params)
    except (bench.BenchError, HostError) as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
