#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_fanout
short_description: Decide which node fetches which file from whom
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - >-
    Gives every file of a plan a home, the one node that fetches it from the object store, balanced by bytes. A file that some node
    has already needs none.
  - >-
    The other nodes take it from a neighbour over the fabric that is nearer to the home than they are; in a ring of four the far node
    takes it from one of the two between. Nodes are neighbours where they have fabric addresses in one subnet.
  - Files without a digest and C(config.json), which nodes may edit, are left to the object store.
  - Reads host variables only, and touches no node. Run it once for all nodes. Its result holds a token and is not displayed.
options:
  plan:
    description: The value RV(gb10.ring.checkpoint_plan#module:plan).
    type: dict
    required: true
  hosts:
    description:
      - Inventory names of the nodes that share. Those of the play, unless given.
      - >-
        Of each, the variables C(ring_rank) and C(fabric_ports) of P(gb10.ring.topology#inventory) are read, and C(lacking) of
        C(checkpoint_budget), the registered result of M(gb10.ring.checkpoint_stage) with C(phase=budget).
    type: list
    elements: str
  port:
    description: TCP port of the nodes' web servers.
    type: int
    default: 7871
  patience_s:
    description: Seconds that a node waits for a file while the other node says that it is still at work.
    type: int
    default: 21600
attributes:
  check_mode:
    description: Changes nothing in either mode.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
  idempotent:
    description: Equal input gives equal homes and ways. The token is a new one each time.
    support: partial
seealso:
  - module: gb10.ring.checkpoint_peer
  - module: gb10.ring.checkpoint_stage
"""

EXAMPLES = r"""
- name: Decide which node fetches what from whom
  gb10.ring.checkpoint_fanout:
    plan: "{{ checkpoint_plan_result.plan }}"
  run_once: true
  register: checkpoint_fanout_result
"""

RETURN = r"""
token:
  description: What every request to another node's server has to begin with. A secret for as long as the servers run.
  returned: success
  type: str
  sample: VALUE_SPECIFIED_IN_NO_LOG_PARAMETER
nodes:
  description:
    - >-
      For each node C(listen), where its server listens (empty when nobody asks it), C(peers), the option of
      M(gb10.ring.checkpoint_stage), and C(home_bytes), what it fetches from the object store for all.
  returned: success
  type: dict
  sample:
    spark1:
      listen: [{address: 10.100.0.1, netdev: enp1s0f0np0}]
      peers: {}
      home_bytes: 153360873151
"""
