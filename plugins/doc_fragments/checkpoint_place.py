# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Which checkpoint on a node is meant."""

    DOCUMENTATION = r"""
options:
  root:
    description: Directory of all checkpoints on the node.
    type: path
    default: /var/lib/gb10-ring/checkpoints
  name:
    description: Name of the checkpoint.
    type: str
    required: true
"""
