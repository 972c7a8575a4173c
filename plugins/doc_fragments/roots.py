# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Directories that stand for those of the machine, which tests replace."""

    ETC = r"""
options:
  etc_root:
    description: Directory that stands for C(/etc).
    type: path
    default: /etc
"""

    SYSFS = r"""
options:
  sysfs_root:
    description: Directory that stands for C(/sys).
    type: path
    default: /sys
"""
