# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that come and go; what apt and dpkg say is as those of Debian 12 print it."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import packages

LISTED = """\
adduser all installed
libc6 amd64 installed
libc6 i386 installed
pci.ids all config-files
perftest amd64 not-installed
known-to-dselect  not-installed
"""
INSTALLS = """\
The following NEW packages will be installed:
  ibverbs-providers libibverbs1 pci.ids
Inst libc6 [2.36-9] (2.36-10 Debian:12.15/oldstable [amd64]) []
Inst libibverbs1 (44.0-2 Debian:12.15/oldstable [amd64])
Inst pci.ids (0.0~2023.04.11-1 Debian:12.15/oldstable [all])
Inst libgcc-s1:i386 (12.2.0-14 Debian:12.15/oldstable [i386])
Conf libibverbs1 (44.0-2 Debian:12.15/oldstable [amd64])
"""


def test_states_are_named_as_apt_names_packages():
    assert packages.states(LISTED, "amd64") == {
        "adduser": "installed",
        "libc6": "installed",
        "libc6:i386": "installed",
        "pci.ids": "config-files",
        "perftest": "not-installed",
        "known-to-dselect": "not-installed",
    }


def test_what_is_upgraded_does_not_come_anew():
    assert packages.brought(INSTALLS, packages.states(LISTED, "amd64")) == {
        "libibverbs1": "not-installed",
        "pci.ids": "config-files",
        "libgcc-s1:i386": "not-installed",
    }


def test_what_is_on_record_stays():
    after, plan = packages.noted({"pci.ids": "config-files"}, {"pci.ids": "not-installed", "a": "not-installed"}, "/r")
    assert after == {"pci.ids": "config-files", "a": "not-installed"}
    assert [(change.what, change.after) for change in plan.changes] == [("/r", "a")]


KNOWN = {"a": "not-installed", "b": "config-files", "c": "not-installed", "d": "not-installed"}
NOW = {"a": "installed", "b": "installed", "c": "config-files", "e": "installed"}


def test_exactly_what_came_goes():
    removal = packages.removal(KNOWN, NOW, "Remv a [1]\nRemv b [2] [a:amd64 ]\n")
    assert (removal.names, removal.purge, removal.refused) == (("a", "b"), ("a", "c"), "")
    assert [change.what for change in removal.plan.changes] == ["package a", "package b"]


@pytest.mark.parametrize(
    ("simulated", "said"),
    [
        (
            "Remv e [1]\nRemv a [1]\nRemv b [2]\n",
            "packages stay (a, b): apt would remove e too, which others need them for.",
        ),
        (
            "Purg opensm [1]\nRemv a [1]\nInst f (3 x)\n",
            "apt would remove opensm too, which others need them for and install f.",
        ),
    ],
)
def test_nothing_goes_when_anything_else_would(simulated, said):
    removal = packages.removal(KNOWN, NOW, simulated)
    assert said in removal.refused
    assert (removal.names, removal.purge, removal.plan.changed) == ((), (), False)
