# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `status` and `cable list` print."""

from __future__ import annotations

import json
from typing import Any

from . import network, nodes, s3, store
from .cabling import State
from .instance import Instance, node_address

ENGINE_PORT = 8000  # default of the role engine


def gather(instance: Instance) -> dict[str, Any]:
    """The instance as JSON shows it; without nodes after `down --nodes-only`."""
    state = store.load(instance) if store.exists(instance) else None
    listed = []
    for number, name in enumerate(state.names() if state else (), 1):
        pid = nodes.leader(instance, name)
        listed.append({"name": name, "address": node_address(number), "running": pid is not None, "pid": pid})
    return {
        "instance": instance.name,
        "shape": state.shape if state else None,
        "directory": str(instance.directory),
        "namespace": instance.netns(network.CONTROLLER),
        "nodes": listed,
        "cables": describe(state) if state else [],
        "s3": {"running": s3.running(instance), "endpoint_url": s3.ENDPOINT, "bucket": s3.BUCKET, "prefix": s3.PREFIX},
    }


def describe(state: State) -> list[dict[str, Any]]:
    """Each cable that is plugged in: its name, its ends, and `up`, `cut`, `loose` (one plug) or `off` (no power at an end)."""
    rows = []
    for name, ends in sorted(state.cables().items()):
        loose = len(ends) == 1 and state.shape != "switch"
        how = "up" if state.carries(name) else "cut" if name in state.cut else "loose" if loose else "off"
        how += ", crossed" if name in state.crossed else ""
        far = ["switch"] if state.shape == "switch" else []
        rows.append({"name": name, "ends": [*map(str, ends), *far], "state": how})
    return rows


def cables(state: State) -> str:
    return "\n".join(f"{row['name']:<8} {' - '.join(row['ends']):<24} {row['state']}" for row in describe(state))


def look(instance: Instance) -> str:
    """Commands that show the lab from different sides, ready to paste."""
    ctl = "lab/ctl" if instance.name == "default" else f"lab/ctl --instance {instance.name}"
    head = f"http://{node_address(1)}:{ENGINE_PORT}"
    rows = (
        (f"{ctl} exec -- curl -s {head}/v1/models", "what the engine serves"),
        (f"{ctl} ssh spark2", "a shell on a node"),
        (f"{ctl} s3 ls", "the objects in the bucket"),
        (f"{ctl} cable cut cable1", "take a cable out; `heal` plugs it in again"),
        (f"{ctl} exec -- ansible-playbook playbooks/verify.yml -i inventories/lab/ring.yml", "hear what is wrong"),
        (f"{ctl} down", "stop, and remove everything"),
    )
    width = max(len(command) for command, _text in rows)
    return "\n".join(["try:", *(f"  {command:<{width}}  # {text}" for command, text in rows)])


def as_json(instance: Instance) -> str:
    return json.dumps(gather(instance), indent=1)


def as_text(instance: Instance) -> str:
    seen = gather(instance)
    shape = f"{seen['shape']} of {len(seen['nodes'])} nodes" if seen["nodes"] else "no nodes"
    lines = [f"{seen['instance']}: {shape}, controller namespace {seen['namespace']}"]
    for node in seen["nodes"]:
        lines.append(
            f"{node['name']:<8} {node['address']:<24} {'on, pid ' + str(node['pid']) if node['running'] else 'off'}"
        )
    lines += [f"{row['name']:<8} {' - '.join(row['ends']):<24} {row['state']}" for row in seen["cables"]]
    lines.append(f"{'s3':<8} {seen['s3']['endpoint_url']:<24} {'running' if seen['s3']['running'] else 'stopped'}")
    return "\n".join(lines)
