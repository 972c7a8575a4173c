# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA device names from netdev names."""

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.topology.rdma_names import rdma_device_of


@pytest.mark.parametrize(
    ("netdev", "device"),
    [
        ("enp1s0f0np0", "rocep1s0f0"),
        ("enp1s0f1np1", "rocep1s0f1"),
        ("enP2p1s0f0np0", "roceP2p1s0f0"),
        ("enP2p1s0f1np1", "roceP2p1s0f1"),
        ("enp3s0", "rocep3s0"),
        ("eth0", None),
        ("enP7s7", None),
        ("ens1f0np0", None),
    ],
)
def test_rdma_device_of(netdev, device):
    assert rdma_device_of(netdev) == device
