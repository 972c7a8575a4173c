# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which wheel of awscrt fits a node. awscrt computes CRC-64/NVME, which Python's standard library does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WHEEL = re.compile(r"awscrt-(?P<version>[^-]+)-(?P<python>cp3\d+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")


def choose(names: Iterable[str], machine: str, python: str) -> str:
    """The newest of these file names for a machine (``aarch64``) and Python (``3.13``) with glibc, or an empty text."""
    fitting = []
    for name in names:
        match = _WHEEL.fullmatch(name)
        if match and _fits(match, machine, python):
            fitting.append((_numbers(match["version"]), name))
    return max(fitting)[1] if fitting else ""


def _fits(match: re.Match[str], machine: str, python: str) -> bool:
    built, wanted = int(match["python"][3:]), int(python.split(".")[1])
    platforms = match["platform"].split(".")
    if not any(name.startswith("manylinux") and name.endswith(f"_{machine}") for name in platforms):
        return False
    return built <= wanted if match["abi"] == "abi3" else built == wanted


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def missing(machine: str, python: str, wheel_dir: str) -> str:
    """What is wrong with a node whose wheel the controller does not carry."""
    return (
        f"awscrt, which computes CRC-64/NVME, is not on the node, and there is no wheel of it for {machine}, "
        f"Python {python} in {wheel_dir} (option wheel_dir, variable checkpoint_wheel_dir)"
    )


def download_command(machine: str, wheel_dir: str) -> str:
    """The command for the controller that fetches that wheel."""
    return (
        "python3 -m pip download --no-deps --only-binary=:all: --implementation cp --python-version 3.11 --abi abi3 "
        f"--platform manylinux2014_{machine} --dest {wheel_dir} 'awscrt>=0.36,<1'"
    )
