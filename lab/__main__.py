# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry point of lab/ctl and of the processes that the lab starts (`python lab/__main__.py ...`)."""

from __future__ import annotations

import sys
from pathlib import Path

# Run by path, so that the caller's directory and environment stay as they are: import this folder as the package `lab`.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lab.cli import main  # noqa: E402 - the checkout had to be put into sys.path

sys.exit(main(sys.argv[1:]))
