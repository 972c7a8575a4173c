# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """How modules behave in check mode and with diff: C(changing) for those that plan and apply, C(looking) for those that only look."""

    CHANGING = r"""
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row with the same arguments, the second run reports no change.
    support: full
"""

    LOOKING = r"""
attributes:
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Never changes anything.
    support: full
"""
