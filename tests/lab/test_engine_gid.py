"""The GID index of an engine that has to be told it: looked up at each start, kept nowhere.

Runs inside the controller namespace of a freshly booted lab (`make engine-test`).
"""

from __future__ import annotations

import json
import re
import time

from site_run import NODES, on, play

VARIABLE = "B12X_ROCE_GID_INDEX"
OVERRIDES = ("-e", json.dumps({"engine_overrides": {"gid_variables": [VARIABLE]}, "engine_restart_allowed": True}))
UNIT = "gb10-ring-engine.service"
SPARK2 = {
    "enp1s0f1np1": "198.19.0.2",
    "enP2p1s0f1np1": "198.19.1.2",
    "enp1s0f0np0": "198.19.2.2",
    "enP2p1s0f0np0": "198.19.3.2",
}


def index(node: str) -> str:
    """What the running engine was told; empty when none runs."""
    pid = on(node, f"systemctl show -p MainPID --value {UNIT}")
    return on(node, f"tr '\\0' '\\n' </proc/{pid}/environ 2>/dev/null | sed -n s/^{VARIABLE}=//p")


def until(node: str, wanted: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while index(node) != wanted:
        assert time.monotonic() < deadline, f"{node}: {index(node)!r}, wanted {wanted!r}\n{journal(node)}"
        time.sleep(0.5)


def journal(node: str) -> str:
    return on(node, f"journalctl -q -o cat -n 40 -u {UNIT}")


def changed(output: str) -> list[str]:
    return re.findall(r"changed=(\d+)", output)


def test_the_index_is_looked_up_at_each_start():
    code, output = play(*OVERRIDES)
    assert code == 0, output
    assert [index(node) for node in NODES] == ["3", "3", "3"]
    for node in NODES:
        assert on(node, f"grep -rl {VARIABLE}=[0-9] /etc || true") == ""


def test_an_index_that_moved_is_found_at_the_next_start_and_is_no_change():
    for number, (netdev, address) in enumerate(SPARK2.items(), start=1):
        # Another address arrives in between and takes the old place.
        steps = (f"del {address}/24", f"add 192.0.2.{number}/32", f"add {address}/24")
        on("spark2", "; ".join(f"ip address {step} dev {netdev}; sleep 0.3" for step in steps))
    assert on("spark1", "gb10-ring-group start") == "every rank runs"
    until("spark2", "5", 30)
    until("spark1", "3", 30)
    code, output = play("--tags", "engine", *OVERRIDES)
    assert code == 0, output
    assert set(changed(output)) == {"0"}


def test_without_the_gid_of_its_address_a_rank_says_so_and_waits_for_it():
    on("spark2", "ip address del 198.19.2.2/24 dev enp1s0f0np0; sleep 0.3")
    on("spark1", "systemd-run -q --unit=again gb10-ring-group start")
    said = "engine-gid: rocep1s0f0 has no RoCE v2 GID for 198.19.2.2. Expected"
    deadline = time.monotonic() + 40
    while said not in journal("spark2"):
        assert time.monotonic() < deadline, journal("spark2")
    assert index("spark2") == ""
    on("spark2", "ip address add 198.19.2.2/24 dev enp1s0f0np0")
    until("spark2", "5", 40)
    until("spark1", "3", 30)
