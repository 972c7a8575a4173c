# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The staging module as Ansible runs it on a node: options as JSON on standard input, the result on standard output."""

from __future__ import annotations

import json
import sys

from ansible.module_utils import basic

from ansible_collections.gb10.ring.plugins.modules import checkpoint_stage

# What Ansible's wrapper does on a node; its testing helper would load unittest too.
basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": json.load(sys.stdin)}).encode()
basic._ANSIBLE_PROFILE = "legacy"
checkpoint_stage.main()
