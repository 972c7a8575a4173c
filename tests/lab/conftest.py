# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drives lab/ctl as a user does: by its command line, from the machine's own namespace (root, `make lab-deps`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CTL = CHECKOUT / "lab" / "ctl"


class Lab:
    """One instance, through its commands."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = CHECKOUT / ".lab" / name

    def argv(self, *words: str) -> list[str]:
        return [str(CTL), "--instance", self.name, *words]

    def ctl(self, *words: str, rc: int = 0, timeout: float = 180) -> str:
        """Run a command of lab/ctl, expect its exit status, return what it said on both streams."""
        done = subprocess.run(self.argv(*words), capture_output=True, text=True, timeout=timeout, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == rc, f"{' '.join(words)}: exit {done.returncode}, not {rc}:\n{said}"
        return said

    def node(self, name: str, script: str, rc: int = 0) -> str:
        return self.ctl("exec", name, "--", "sh", "-c", script, rc=rc).strip()

    def controller(self, script: str, rc: int = 0) -> str:
        return self.ctl("exec", "--", "sh", "-c", script, rc=rc).strip()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ctl("status", "--json"))
        return found

    def pids(self) -> list[int]:
        return [node["pid"] for node in self.status()["nodes"]]

    def until(self, name: str, condition: str) -> None:
        """Wait up to 5 s for a condition on a node."""
        self.node(name, f"for i in $(seq 50); do if {condition}; then exit 0; fi; sleep 0.1; done; exit 1")


def host_links() -> str:
    """Links and addresses of the machine's own namespace, without lifetimes."""
    return subprocess.run(["ip", "-br", "address"], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def links_before() -> str:
    return host_links()


@pytest.fixture(scope="session")
def lab(links_before: str) -> Iterator[Lab]:
    """A ring of three with small disks and the small checkpoint; whatever an earlier run left is removed first."""
    made = Lab("t-lab")
    made.ctl("down")
    try:
        made.ctl("up", "--data-mib", "64", timeout=900)
        yield made
    finally:
        made.ctl("down")


@pytest.fixture(scope="session")
def legs(lab: Lab) -> dict[str, str]:
    """Addresses on both rails of cable1, at spark1:0 and spark2:1."""
    ends = {
        "spark1": {"enp1s0f0np0": "198.19.0.1", "enP2p1s0f0np0": "198.19.1.1"},
        "spark2": {"enp1s0f1np1": "198.19.0.2", "enP2p1s0f1np1": "198.19.1.2"},
    }
    for name, addresses in ends.items():
        plan = "".join(
            f"    {netdev}: {{addresses: [{address}/24], mtu: 9000, link-local: [], optional: true}}\n"
            for netdev, address in addresses.items()
        )
        text = f"network:\n  version: 2\n  ethernets:\n{plan}"
        lab.node(name, f"umask 077; cat >/etc/netplan/60-test.yaml <<'X'\n{text}X\nnetplan apply 2>/dev/null")
    for name, addresses in ends.items():
        for address in addresses.values():
            lab.until(name, f"ip -br address | grep -q {address}/")
    return {"rail0": "198.19.0.2", "rail1": "198.19.1.2"}
