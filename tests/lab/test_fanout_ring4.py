"""A ring of four, whose far nodes have no cable between them: files reach them through a neighbour.

Runs inside the controller namespace of a freshly booted lab of four nodes (`make shapes`).
"""

from __future__ import annotations

from fanout_run import contents, nothing_is_left, run, size
from site_run import INVENTORY

NODES = ("spark1", "spark2", "spark3", "spark4")


def test_every_byte_leaves_the_store_once():
    code, output, sent = run(
        "--tags", "preflight,fabric,checkpoint", inventory=INVENTORY / "ring4.yml", checkpoint_fanout=True
    )
    assert code == 0, output
    assert size() <= sent <= 1.02 * size()
    assert len(set(contents(NODES).values())) == 1 and nothing_is_left(NODES)
