# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ports have their names from netplan, and by what they are recognised."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.foreign import Netdev
from ansible_collections.gb10.ring.plugins.module_utils.fabric.naming import namings

MAC = "4c:bb:47:01:00:00"
PORT, TWIN = "enp1s0f0np0", "enP2p1s0f0np0"
FILE = "/run/systemd/network/10-netplan-cx7.link"
NAMED = f"Name={PORT}\nWakeOnLan=off\nMTUBytes=9000"
BY_MAC = {"macaddress": MAC}


def link(match: str, settings: str = NAMED) -> dict[str, str]:
    """A file in the form that netplan 1.1 writes."""
    return {FILE: f"[Match]\n{match}\n\n[Link]\n{settings}\n"}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (f"PermanentMACAddress={MAC}", BY_MAC),
        (f"MACAddress={MAC}", BY_MAC),  # netplan before 0.106
        ("OriginalName=eth*", {"name": "eth*"}),
        ("Driver=mlx5_core\nOriginalName=eth*", {"driver": "mlx5_core", "name": "eth*"}),
        ("Driver=mlx5_core\tvirtio_net", {"driver": ["mlx5_core", "virtio_net"]}),
    ],
)
def test_what_the_generated_file_matches(match: str, expected: dict[str, object]) -> None:
    assert namings([PORT], link(match), {}, []) == {PORT: expected}


@pytest.mark.parametrize(
    "files",
    [
        {},
        link(f"OriginalName={PORT}", "WakeOnLan=off\nMTUBytes=9000"),  # of an entry without set-name
        link(f"PermanentMACAddress={MAC}", "Name=eth0"),  # not a port of the fabric
        link("Path=pci-0000:01:00.0"),  # netplan writes no such match
        {FILE: f"[Link]\n{NAMED}\n"},
        {FILE: "no ini file\n"},
    ],
)
def test_files_that_name_no_port(files: dict[str, str]) -> None:
    assert namings([PORT], files, {}, []) == {}


def test_our_file_knows_it_when_none_was_generated() -> None:
    own = {PORT: {"match": BY_MAC, "set-name": PORT, "addresses": ["10.100.0.1/24"]}, TWIN: {"mtu": "9000"}}
    assert namings([PORT, TWIN], {}, own, []) == {PORT: BY_MAC}


def test_the_file_in_force_comes_first() -> None:
    own = {PORT: {"match": {"name": "eth0"}, "set-name": PORT}}
    assert namings([PORT], link(f"PermanentMACAddress={MAC}"), own, []) == {PORT: BY_MAC}


@pytest.mark.parametrize(
    ("netdev", "kept"),
    [
        (Netdev(PORT, (MAC,)), True),
        (Netdev(PORT, ("02:00:00:00:00:09", MAC)), True),  # a bond's address, and its own
        (Netdev(PORT, ("4c:bb:47:09:00:00",)), False),  # another adapter, which has the name without our help
        (Netdev(TWIN, ("4c:bb:47:09:00:00",)), True),  # powered off: nothing is known against it
    ],
)
def test_a_match_that_no_longer_fits_is_let_go(netdev: Netdev, kept: bool) -> None:
    own = {PORT: {"match": BY_MAC, "set-name": PORT}}
    assert (namings([PORT], {}, own, [netdev]) == {PORT: BY_MAC}) is kept


def test_an_original_name_is_not_compared_with_that_of_now() -> None:
    assert namings([PORT], link("OriginalName=eth*"), {}, [Netdev(PORT, (MAC,))]) == {PORT: {"name": "eth*"}}
