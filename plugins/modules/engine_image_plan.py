#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_plan
short_description: Decide how every node comes by the image that the ranks run
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Nodes that lack the image take it from a neighbour over the fabric; in a ring of four the far node takes it from one of the two
    between, when that one has it. When no node has it, the first one (rank 0) reads O(archive), or pulls O(image), once for all.
  - >-
    Before a byte moves it counts the disk. Loading takes twice the size of the image for a while, since docker and podman keep the
    stream in a temporary file before they make layers of it, and giving takes its size, since docker writes the layers beside each other first.
  - Reads host variables only, and touches no node. Run it once for all nodes. The result holds a token and is not displayed.
options:
  runtime:
    description: Whose images.
    type: str
    choices: [docker, podman]
    required: true
  image:
    description: The image as C(NAME@sha256:DIGEST), or C(NAME:TAG) together with O(image_id).
    type: str
    default: ""
  image_id:
    description: The image's id. When empty, the id that O(image) stands for on a node that has it.
    type: str
    default: ""
  archive:
    description: Path of the archive on the first node that the image is loaded from when no node has it. Needs O(image_id).
    type: path
    default: ""
  assumed_gib:
    description: Size of the image in GiB as long as no node has it.
    type: float
    default: 22
  ceiling_percent:
    description: How full the file system with the images may get, in percent.
    type: int
    default: 85
  hosts:
    description:
      - Inventory names of the nodes. Those of the play, unless given.
      - >-
        Of each, C(ring_rank) and C(fabric_ports) of P(gb10.ring.topology#inventory) are read, and C(engine_image_look), the
        registered result of M(gb10.ring.engine_image).
    type: list
    elements: str
  phase:
    description:
      - V(move) decides. V(arrived) returns as C(checks) whether every node has the image, V(unit) whether O(node) has it and its unit runs it.
    type: str
    choices: [move, arrived, unit]
    default: move
  node:
    description: Inventory name of the node whose checks are wanted with V(unit).
    type: str
attributes:
  check_mode:
    description: Changes nothing in either mode.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  idempotent:
    description: Equal input gives equal steps. The token is a new one each time.
    support: partial
seealso:
  - module: gb10.ring.engine_image
  - module: gb10.ring.engine_image_peer
"""

EXAMPLES = r"""
- name: Decide which node gets the image from whom
  gb10.ring.engine_image_plan:
    runtime: docker
    image: "{{ engine_profile_values.image }}"
    image_id: "{{ engine_profile_values.image_id }}"
  run_once: true
  register: engine_image_result
"""

RETURN = r"""
image_id:
  description: The id that all nodes are to have; empty while no node knows it.
  returned: O(phase=move)
  type: str
  sample: sha256:8dab469dd37e28c26612648079eb075eb3152dc2dacd8347c55a6f2aba037b54
moved:
  description: Whether any node has to bring the image.
  returned: O(phase=move)
  type: bool
  sample: true
waves:
  description: How many times nodes take the image one after another.
  returned: O(phase=move)
  type: int
  sample: 1
nodes:
  description:
    - >-
      For each node C(step) and C(sources), options of M(gb10.ring.engine_image), C(wave), C(listen), option of
      M(gb10.ring.engine_image_peer), and C(move), what it does in words.
  returned: O(phase=move)
  type: dict
  sample:
    spark1: {step: keep, wave: 0, sources: [], listen: [{address: 10.100.0.1, netdev: enp1s0f0np0}], move: ""}
checks:
  description: C(engine.image) and C(engine.image_budget); failed ones say why the image cannot be brought.
  returned: success
  type: list
  elements: dict
  sample: []
token:
  description: What every request to another node's server has to begin with. A secret for as long as the servers run.
  returned: O(phase=move)
  type: str
  sample: VALUE_SPECIFIED_IN_NO_LOG_PARAMETER
"""
