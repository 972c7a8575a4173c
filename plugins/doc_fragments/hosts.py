# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What filters take that look at a registered variable of several hosts; by the part C(name) which variable."""

    DOCUMENTATION = r"""
options:
  _input:
    description: The C(hostvars) mapping.
    type: dict
    required: true
  hosts:
    description: Inventory names, for example C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
"""

    NAME = r"""
options:
  name:
    description: Name of the registered variable.
    type: str
    required: true
"""
