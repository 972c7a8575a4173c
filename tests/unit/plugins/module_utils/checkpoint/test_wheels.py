# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import wheels

ARM = "awscrt-0.38.1-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl"
INTEL = "awscrt-0.38.1-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
OLD = "awscrt-0.9.12-cp311-abi3-manylinux2014_aarch64.whl"
EXACT = "awscrt-0.38.1-cp310-cp310-manylinux2014_aarch64.whl"
MUSL = "awscrt-0.38.1-cp311-abi3-musllinux_1_1_aarch64.whl"


@pytest.mark.parametrize(
    ("names", "machine", "python", "chosen"),
    [
        ([INTEL, ARM], "aarch64", "3.13", ARM),
        ([INTEL, ARM], "x86_64", "3.11", INTEL),
        ([ARM], "aarch64", "3.10", ""),
        ([ARM, EXACT], "aarch64", "3.10", EXACT),
        ([EXACT], "aarch64", "3.12", ""),
        ([OLD, ARM], "aarch64", "3.12", ARM),
        ([ARM, OLD], "aarch64", "3.12", ARM),
        ([MUSL], "aarch64", "3.12", ""),
        ([INTEL, "README", "boto3-1.43-py3-none-any.whl"], "aarch64", "3.12", ""),
        ([], "aarch64", "3.12", ""),
    ],
)
def test_choose(names, machine, python, chosen):
    assert wheels.choose(names, machine, python) == chosen


def test_the_texts_name_machine_place_and_command():
    assert "aarch64, Python 3.13 in /wheels" in wheels.missing("aarch64", "3.13", "/wheels")
    command = wheels.download_command("aarch64", "/wheels")
    assert "--platform manylinux2014_aarch64 --dest /wheels 'awscrt>=0.36,<1'" in command
