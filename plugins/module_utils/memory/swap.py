# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Swap: what /proc/swaps, /etc/fstab and the swap units say, and what has to change for none of it to be used; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MARKER = "# gb10.ring: "

# Units that make a zram swap device: zram-generator's template, Ubuntu's zram-config, Debian's zram-tools.
ZRAM_UNITS = ("systemd-zram-setup@.service", "zram-config.service", "zramswap.service")

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Swap:
    """One active swap area; size and used in KiB."""

    name: str
    kind: str
    size_kib: int
    used_kib: int

    def text(self) -> str:
        return f"{self.name} ({self.kind}, {self.size_kib} KiB, {self.used_kib} KiB used)"


@dataclass(frozen=True)
class UnitFile:
    """A unit file that can bring swap back. own: it lies in /etc/systemd/system, where the mask link has to go."""

    name: str
    path: str
    text: str
    own: bool


def parse_swaps(text: str) -> tuple[Swap, ...]:
    """Active areas of /proc/swaps; its first line is a heading, blanks in names are octal escapes."""
    swaps = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()):
            continue
        name = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[0])
        swaps.append(Swap(name, fields[1], int(fields[2]), int(fields[3])))
    return tuple(swaps)


def meminfo_kib(text: str, key: str) -> int | None:
    """A field of /proc/meminfo in KiB, or None when the kernel does not print it."""
    found = re.search(rf"^{re.escape(key)}:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def fstab_swaps(text: str) -> tuple[str, ...]:
    """Lines of /etc/fstab that switch swap on at boot. A noauto line does not, so it is left alone."""
    return tuple(line for line in text.splitlines() if _activates(line))


def fstab_without_swap(text: str) -> str:
    """The fstab with each of those lines commented behind our marker; every other byte stays as it is."""
    return "".join(MARKER + line if _activates(line.rstrip("\n")) else line for line in text.splitlines(keepends=True))


def fstab_with_swap(text: str, lines: Iterable[str]) -> str:
    """The fstab with the marker taken off these lines; the opposite of fstab_without_swap, byte for byte."""
    marked = {MARKER + line for line in lines}
    return "".join(
        line.removeprefix(MARKER) if line.rstrip("\n") in marked else line for line in text.splitlines(keepends=True)
    )


def _activates(line: str) -> bool:
    fields = line.split()
    if len(fields) < 3 or fields[0].startswith("#") or fields[2] != "swap":
        return False
    return len(fields) < 4 or "noauto" not in fields[3].split(",")


def units_to_mask(units: Iterable[UnitFile], masked: Iterable[str]) -> tuple[UnitFile, ...]:
    """Swap units that would start at the next boot: not masked yet, and not made by systemd from an fstab line."""
    done = set(masked)
    first: dict[str, UnitFile] = {}
    for unit in units:
        if unit.name not in done and not re.search(r"^SourcePath=/etc/fstab$", unit.text, re.MULTILINE):
            first.setdefault(unit.name, unit)
    return tuple(first[name] for name in sorted(first))


def refusal(swaps: Iterable[Swap], available_kib: int | None) -> str:
    """Why swapoff must not be run now, with the arithmetic; empty when it may. swapoff reads everything back into memory."""
    used = sum(swap.used_kib for swap in swaps)
    if used == 0:
        return ""
    if available_kib is None:
        return f"{used} KiB are swapped out and /proc/meminfo shows no MemAvailable to compare with"
    if used <= available_kib:
        return ""
    return (
        f"{used} KiB are swapped out and {available_kib} KiB are available (MemAvailable): {used - available_kib} KiB too few "
        "to take them back. Stop what uses the memory (the engine first) or reboot, then run again"
    )
