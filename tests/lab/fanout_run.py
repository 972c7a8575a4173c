"""Stagings with nodes that give each other files, through a proxy that counts, and looking at what they left."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from count_proxy import CountProxy
from site_run import INVENTORY, NODES, on, play

BASE = "/var/lib/gb10-ring/checkpoints"
ROOT = f"{BASE}/DeepSeek-V4.1-Flash-EXL3-lab"
PROXY = ("198.18.0.254", 8445)
UNIT = "gb10-ring-fanout.service"
PORT = 7871
STAGE = ("--tags", "checkpoint")


def everywhere(command, nodes=NODES):
    """What a command prints on each node."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(nodes, pool.map(lambda node: on(node, command), nodes), strict=True))


def run(*extra, inventory=INVENTORY / "ring.yml", **variables):
    """Exit status and output of a staging through a proxy, and what left the object store."""
    endpoint = {"checkpoint_endpoint_url": f"http://{PROXY[0]}:{PROXY[1]}"}
    with CountProxy(*PROXY, (PROXY[0], 8333)) as proxy:
        code, output = play(*extra, "-e", json.dumps({**endpoint, **variables}), inventory=inventory)
    return code, output, proxy.bytes


def staging_runs(node):
    """Whether a process on the node is at work on the checkpoint."""
    return on(node, f"test ! -e {ROOT}/staging/.lock || flock -n {ROOT}/staging/.lock true || echo yes") == "yes"


def forget():
    everywhere(f"rm -rf {BASE}")


def contents(nodes=NODES):
    """One line that stands for all files of the active revision, by node."""
    return everywhere(f"cd {ROOT}/current/ && find . -type f | sort | xargs sha256sum | sha256sum", nodes)


def size():
    return int(
        on("spark1", f"cd {ROOT}/current/ && find . -type f -printf '%s\\n' | awk '{{s += $1}} END {{print s}}'")
    )


def nothing_is_left(nodes=NODES):
    listening = everywhere(
        f"ss -Hltn 'sport = :{PORT}'; systemctl is-active {UNIT} || true; ls /run | grep gb10-ring-fan || true", nodes
    )
    assert listening == dict.fromkeys(nodes, "inactive")
    return True


def all_equal(wanted):
    assert contents() == dict.fromkeys(NODES, wanted)
    return True
