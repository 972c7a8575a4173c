"""Facts of the lab's default site, written out by hand: what the machines must show, not what the code computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / ".lab" / "checkpoint-1"
ROOT = "/var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3-lab"
HEAD = "198.18.0.1"


@dataclass(frozen=True)
class End:
    """One end of a leg: netdev, its address, the address at the other end."""

    netdev: str
    address: str
    peer: str


ENDS = {
    "spark1": [
        End("enp1s0f0np0", "198.19.0.1", "198.19.0.2"),
        End("enP2p1s0f0np0", "198.19.1.1", "198.19.1.2"),
        End("enp1s0f1np1", "198.19.4.1", "198.19.4.3"),
        End("enP2p1s0f1np1", "198.19.5.1", "198.19.5.3"),
    ],
    "spark2": [
        End("enp1s0f1np1", "198.19.0.2", "198.19.0.1"),
        End("enP2p1s0f1np1", "198.19.1.2", "198.19.1.1"),
        End("enp1s0f0np0", "198.19.2.2", "198.19.2.3"),
        End("enP2p1s0f0np0", "198.19.3.2", "198.19.3.3"),
    ],
    "spark3": [
        End("enp1s0f1np1", "198.19.2.3", "198.19.2.2"),
        End("enP2p1s0f1np1", "198.19.3.3", "198.19.3.2"),
        End("enp1s0f0np0", "198.19.4.3", "198.19.4.1"),
        End("enP2p1s0f0np0", "198.19.5.3", "198.19.5.1"),
    ],
}
