# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking definitions out of somebody's netplan file."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan_yaml import excerpt, parse, remove

MIXED = """\
# mine
network:
  version: 2
  renderer: NetworkManager
  ethernets:
    enP7s7: {dhcp4: yes, macaddress: 12:34:56:10:20:30, optional: false}
    wan1:
      macaddress: 12:34:56:10:20:31
    lan:
    cx0:
      addresses: [192.168.0.1/24]
  bridges:
    br0:
      interfaces: [cx0, enP7s7]
  vlans:
    v7: {id: 7, link: cx0}
"""


def test_what_is_left_keeps_its_spelling():
    left = remove(
        MIXED,
        [(("ethernets", "cx0"), ""), (("vlans", "v7"), ""), (("bridges", "br0", "interfaces"), "cx0")],
        "# ours\n",
    )
    assert left == (
        "# ours\n"
        "network:\n"
        "  version: 2\n"
        "  renderer: NetworkManager\n"
        "  ethernets:\n"
        "    enP7s7: {dhcp4: yes, macaddress: '12:34:56:10:20:30', optional: false}\n"
        "    wan1:\n"
        "      macaddress: 12:34:56:10:20:31\n"
        "    lan:\n"
        "  bridges:\n"
        "    br0:\n"
        "      interfaces: [enP7s7]\n"
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("network: {version: 2, ethernets: {cx0: {dhcp4: true}}}", None),
        ("network: {ethernets: {cx0: }}", None),
        # A renderer of the whole file is for other files too
        (
            "network: {version: 2, renderer: networkd, ethernets: {cx0: {}}}",
            "network: {version: 2, renderer: networkd}\n",
        ),
    ],
)
def test_nothing_left(text, left):
    assert remove(text, [(("ethernets", "cx0"), "")], "") == left


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# nothing\n", {}),
        ("a: {b: yes, c: 12:30:45}", {"a": {"b": "yes", "c": "12:30:45"}}),
        ("network:\n\tethernets: {}\n", None),
        ("- a\n", None),
        ("a: \udcff", None),
    ],
)
def test_parse(text, expected):
    assert parse(text) == expected


def test_an_excerpt_hides_secrets():
    text = "network: {ethernets: {a: {auth: {password: x}, mtu: 1}, b: {}}, wifis: {w: {access-points: {s: {password: geheim}}}}}"
    shown = excerpt(parse(text) or {}, [("ethernets", "a"), ("wifis", "w")])
    assert shown == (
        "ethernets:\n  a:\n    auth: (hidden)\n    mtu: '1'\nwifis:\n  w:\n    access-points:\n      s:\n        password: (hidden)\n"
    )
