# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (5974, "6.0 kB"),
        (999_999, "1.0 MB"),
        (460_082_619_454, "460.1 GB"),
        (983_547_510_784, "983.5 GB"),
        (1_500_000_000_000, "1.50 TB"),
    ],
)
def test_human(count, text):
    assert units.human(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (54, "54 files")])
def test_files(count, text):
    assert units.files(count) == text
