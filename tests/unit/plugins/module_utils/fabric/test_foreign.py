# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else defines a port of the fabric."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.foreign import Netdev, claims, effective, profile_claims
from ansible_collections.gb10.ring.plugins.module_utils.fabric.netplan_yaml import parse

P0, P0TWIN, P1 = "enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1"
PORTS = (P0, P0TWIN, P1)
NETDEVS = (
    Netdev(P0, ("4c:bb:47:00:00:01",), "mlx5_core"),
    Netdev(P0TWIN, ("4c:bb:47:00:00:02",), "mlx5_core"),
    Netdev("enP7s7", ("4c:bb:47:00:00:09",), "r8127"),
    Netdev("wlP9s9", (), "mt7925e"),
)  # P1 is absent: powered off
FILE = "/etc/netplan/40-cx7.yaml"


def found(text: str, **others: str) -> list[tuple[str, tuple[str, ...], str, str, bool]]:
    """Claims of one file, or of several by their names."""
    texts = {FILE: text, **{f"/etc/netplan/{name}.yaml": other for name, other in others.items()}}
    networks = {path: parse(f"network:\n  version: 2\n{content}") or {} for path, content in texts.items()}
    return [
        (".".join(claim.where), claim.ports, claim.how, claim.item, bool(claim.blocked))
        for claim in claims(networks, PORTS, NETDEVS, ("enP7s7", "mgmt0"))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ethernets: {enP7s7: {dhcp4: true}}", []),
        ("  wifis: {wlP9s9: {access-points: {x: {}}}}", []),
        (f"  ethernets: {{{P0}: {{dhcp4: true}}}}", [(f"ethernets.{P0}", (P0,), "by name", "", False)]),
        (f"  ethernets:\n    {P1}:", [(f"ethernets.{P1}", (P1,), "by name", "", False)]),  # absent now, and empty
        (
            "  ethernets: {cx: {match: {name: 'en*s0f0np0'}}}",
            [("ethernets.cx", (P0, P0TWIN), "match name en*s0f0np0", "", False)],
        ),
        (
            "  ethernets: {cx: {match: {driver: [mlx5_core, bnxt_en]}}}",
            [("ethernets.cx", (P0, P0TWIN), "match driver ['mlx5_core', 'bnxt_en']", "", False)],
        ),
        (
            "  ethernets: {cx: {match: {macaddress: '4C:BB:47:00:00:02'}, set-name: fast0}}",
            [("ethernets.cx", (P0TWIN,), "match macaddress 4C:BB:47:00:00:02, set-name", "", False)],
        ),
        (
            f"  ethernets: {{cx: {{match: {{macaddress: '00:00:00:00:00:01'}}, set-name: {P1}}}}}",
            [("ethernets.cx", (P1,), "match macaddress 00:00:00:00:00:01, set-name", "", False)],
        ),
        ("  ethernets: {cx: {match: {driver: mlx5_core, macaddress: '4c:bb:47:00:00:09'}}}", []),
        ("  ethernets: {all: {match: {name: 'en*'}}}", [("ethernets.all", PORTS, "match name en*", "", True)]),
        ("  ethernets: {all: {match: {}}}", [("ethernets.all", PORTS, "match of every interface", "", True)]),
        (
            # As NetworkManager of Ubuntu keeps a profile: 90-NM-UUID.yaml
            "  nm-devices: {NM-1: {renderer: NetworkManager, match: {}, networkmanager: "
            f"{{uuid: '1', passthrough: {{connection.interface-name: {P0}}}}}}}}}",
            [("nm-devices.NM-1", (P0,), "NetworkManager profile", "", False)],
        ),
        (
            f"  ethernets: {{cx: {{match: {{name: {P0}}}}}}}\n  bonds: {{bond0: {{interfaces: [cx, {P1}]}}}}\n  ethernets2: {{}}",
            [
                ("ethernets.cx", (P0,), f"match name {P0}", "", False),
                ("bonds.bond0.interfaces", (P0,), "member of a bond", "cx", False),
            ],
        ),
        (
            f"  ethernets: {{{P0}: {{}}, {P1}: {{}}, enP7s7: {{}}}}\n  bonds: {{b: {{interfaces: [{P0}, {P1}]}}}}\n"
            f"  vlans: {{v: {{id: 5, link: b}}}}\n  bridges: {{br: {{interfaces: [v, enP7s7]}}}}",
            [
                (f"ethernets.{P0}", (P0,), "by name", "", False),
                (f"ethernets.{P1}", (P1,), "by name", "", False),
                ("bonds.b", (P0, P1), "bond over it", "", False),
                ("vlans.v", (P0, P1), "vlan over it", "", False),
                ("bridges.br.interfaces", (P0, P1), "member of a bridge", "v", False),
            ],
        ),
        (
            f"  ethernets: {{{P0}: {{}}}}\n  bridges: {{mgmt0: {{interfaces: [{P0}]}}}}",
            [
                (f"ethernets.{P0}", (P0,), "by name", "", False),
                ("bridges.mgmt0", (P0,), "bridge over it", "", True),
            ],
        ),
    ],
)
def test_claims(text, expected):
    assert found(text) == expected


def test_definitions_of_one_name_in_two_files_are_one():
    """match in the one, addresses in the other, a vlan over it in a third: all three have to go."""
    match = f"  ethernets: {{cx: {{match: {{name: {P0}}}}}}}"
    assert found(match, a="  ethernets: {cx: {dhcp4: true}}", b="  vlans: {v: {id: 1, link: cx}}") == [
        ("ethernets.cx", (P0,), f"match name {P0}", "", False),
        ("ethernets.cx", (P0,), f"match name {P0}", "", False),
        ("vlans.v", (P0,), "vlan over it", "", False),
    ]


def test_text_names_file_definition_port_and_what_is_in_the_way():
    (claim,) = claims({FILE: parse("network: {ethernets: {all: {match: {name: en*}}}}")}, PORTS[:1], NETDEVS, ())
    assert claim.text() == (
        f"{FILE}: ethernets.all defines {P0} (match name en*); it is for {P0TWIN}, enP7s7 too and cannot be taken out"
    )


def test_files_that_hide_each_other():
    paths = [
        "/usr/lib/netplan/a.yaml",
        "/run/netplan/a.yaml",
        "/run/netplan/b.yaml",
        "/etc/netplan/b.yaml",
        "/etc/netplan/0.yaml",
    ]
    assert effective(paths) == ["/etc/netplan/0.yaml", "/run/netplan/a.yaml", "/etc/netplan/b.yaml"]


@pytest.mark.parametrize(
    ("text", "ports", "how"),
    [
        (f"[connection]\nid=cx7\ninterface-name={P0}\n[ipv4]\nmethod=auto\n", (P0,), "by name"),
        (f"[connection]\ninterface-name={P0}\n[.nmmeta]\nnm-generated=true\n", (), ""),
        ("[connection]\nid=x\n[ethernet]\nmac-address=4C:BB:47:00:00:02\n", (P0TWIN,), "by MAC address"),
        ("[connection]\nid=x\n[match]\ninterface-name=enp1s0f*;other;\n", (P0, P1), "by match"),
        (f"[connection]\nid=x\ninterface-name=v7\n[vlan]\nparent={P0}\n", (P0,), "vlan over it"),
        ("[connection]\nid=lan\ninterface-name=enP7s7\n", (), ""),
        ("[connection]\nid=any\n", (), ""),  # for any port: yields to one for this port
        ("no keyfile\n", (), ""),
    ],
)
def test_profiles(text, ports, how):
    path = "/etc/NetworkManager/system-connections/x.nmconnection"
    expected = [(path, (), ports, f"NetworkManager profile, {how}")] if ports else []
    assert [
        (claim.file, claim.where, claim.ports, claim.how) for claim in profile_claims({path: text}, PORTS, NETDEVS)
    ] == expected
