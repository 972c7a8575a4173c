# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of the engine on lab nodes of the layer `docker`: the image, faults of its transfer, what the runtime was asked for."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from site_run import CHECKOUT, INCIDENTS, NODES, incidents, new_incident, on, on_all, play

sys.path.insert(0, str(CHECKOUT))
from lab import image

DATA = "/var/lib/gb10-ring"
ARCHIVE = f"{DATA}/engine-image.tar"
UNLIMITED = (1 << 64) - 1
ASKED = {
    "executable": image.ENGINE,
    "limit_memlock": "infinity",
    "limit_nofile": 524288,
    "limit_stack": 67108864,
    "oom_score_adjust": 600,
    "cpus": 2,
    "memory_gib": 3,
    "shm_gib": 1,
    # The runtime mounts a /sys of its own, where the stand-ins of the ConnectX functions are not.
    "mounts": [{"source": "/sys", "target": "/sys"}],
}
# In front of the runtime's client on the node that gives: what it says of the image is cut short with and without telling, or changed.
FAULTY = """#!/bin/sh
case "$1 $2 $(cat /run/image-fault)" in
  "image save cut") {real} "$@" | head -c 20000000; exit 1 ;;
  "image save short") {real} "$@" | head -c 20000000; exit 0 ;;
  "image save flip") {real} "$@" | /usr/bin/python3 /run/image-flip; exit 0 ;;
esac
exec {real} "$@"
"""
FLIP = """import sys
content = bytearray(sys.stdin.buffer.read())
content[20000000] ^= 1
sys.stdout.buffer.write(content)
"""


def node_file(node: str, path: str) -> Path:
    """A file of the node as this machine sees it; only in places that are not mounted over."""
    root = Path(os.environ["GB10_LAB"]) / "nodes" / node
    return root / "data" / path.removeprefix(f"{DATA}/") if path.startswith(f"{DATA}/") else root / "root" / path[1:]


def write(node: str, path: str, text: str) -> None:
    on(node, f"cat >{path} <<'GB10'\n{text}GB10")


def archive(runtime: str) -> str:
    """Make the image on the first node, keep it as an archive only; its id."""
    tar = node_file("spark1", f"{DATA}/rootfs.tar")
    image.write(Path(os.environ["GB10_LAB"]) / "base" / "rootfs", tar)
    image_id = on("spark1", f"{runtime} import -q {DATA}/rootfs.tar 2>/dev/null || {runtime} import {DATA}/rootfs.tar")
    on("spark1", f"{runtime} save -o {ARCHIVE} {image_id} && {runtime} image rm {image_id} && rm {DATA}/rootfs.tar")
    return image_id


def archived() -> str:
    """Id of the image in the archive that an earlier run of the tests has left, empty without one."""
    listed = on("spark1", f"tar -xOf {ARCHIVE} manifest.json 2>/dev/null || true")
    return "sha256:" + Path(json.loads(listed)[0]["Config"]).stem if listed else ""


def settings(runtime: str, overrides: dict[str, Any], **more: Any) -> tuple[str, ...]:
    """The words of ansible-playbook that make the lab's engine one in a container."""
    known = {"engine_renderer": runtime, "engine_image_gib": 0.1, "engine_restart_allowed": True}
    return ("-e", json.dumps({**known, "engine_overrides": {**ASKED, **overrides}, **more}))


def engine(*words: str, tags: bool = True) -> tuple[int, str]:
    return play(*(("--tags", "engine") if tags else ()), *words)


def faulty(runtime: str, fault: str) -> None:
    """Have the first node give the image with a fault: cut, short or flip; none ends that."""
    real = f"/usr/bin/{runtime}.real"
    on("spark1", f"test -e {real} || mv /usr/bin/{runtime} {real}")
    write("spark1", "/run/image-flip", FLIP)
    write("spark1", "/run/image-fault", f"{fault}\n")
    write("spark1", f"/usr/bin/{runtime}", FAULTY.format(real=real))
    on("spark1", f"chmod 755 /usr/bin/{runtime}")


def whole(runtime: str) -> None:
    on("spark1", f"mv /usr/bin/{runtime}.real /usr/bin/{runtime}; rm /run/image-fault /run/image-flip")


def ids(runtime: str, node: str) -> list[str]:
    found = on(node, f"{runtime} image ls -a -q --no-trunc").split()
    return sorted({name if name.startswith("sha256:") else f"sha256:{name}" for name in found})


LAYERS = {
    "docker": "/var/lib/docker/image/overlay2/layerdb/sha256/*",
    "podman": "/var/lib/containers/storage/overlay/*/diff",
}


def left(runtime: str, node: str) -> str:
    """What a transfer may have left on a node: files, layers, a unit, a listener; empty when there is nothing."""
    places = "/run/gb10-ring-image /var/lib/docker/tmp/docker-* /var/lib/containers/gb10-ring-image-* /var/tmp/*podman*"
    script = (
        f"ls -d {places} {LAYERS[runtime]} 2>/dev/null; "
        "systemctl list-units --all --no-legend 'gb10-ring-image*'; ss -Hltn 'sport = :7874'; true"
    )
    return on(node, script)


def record(node: str) -> dict[str, Any]:
    """What the unit was rendered from."""
    return dict(json.loads(on(node, "cat /etc/gb10-ring/engine.json")))


def asked_of_runtime(runtime: str, node: str) -> dict[str, Any]:
    """The configuration with which the OCI runtime was asked for the container that runs."""
    container = on(node, f"{runtime} ps -q --no-trunc --filter name=^gb10-ring-engine$")
    return dict(json.loads(on(node, f"cat /var/lib/gb10-lab/oci/{container}.json")))


def differences(spec: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Where the request to the OCI runtime is not what the specification says."""
    limits, process, resources = spec["limits"], asked["process"], asked["linux"]["resources"]
    container = spec["container"]
    memlock = UNLIMITED if limits["memlock"] == "infinity" else int(limits["memlock"])
    rlimits = {row["type"]: (row["soft"], row["hard"]) for row in process["rlimits"]}
    mounts = {row["destination"]: row for row in asked["mounts"]}
    cpu = resources["cpu"]
    environment = dict(row.partition("=")[::2] for row in process["env"])
    pairs = {
        "memlock": (rlimits.get("RLIMIT_MEMLOCK"), (memlock, memlock)),
        "nofile": (rlimits.get("RLIMIT_NOFILE"), (limits["nofile"],) * 2),
        "stack": (rlimits.get("RLIMIT_STACK"), (limits["stack"],) * 2),
        "memory": (resources["memory"]["limit"], limits["memory_gib"] << 30),
        "cpus": (cpu["quota"] / cpu["period"], limits["cpus"]),
        "oom": (process["oomScoreAdj"], limits["oom_score_adjust"]),
        "argv": (process["args"], spec["argv"]),
        "env": ({name: environment.get(name) for name in spec["env"]}, spec["env"]),
        "gpus": (environment.get("NVIDIA_VISIBLE_DEVICES"), container["gpus"]),
        "capabilities": (
            {kind: sorted(process["capabilities"][kind]) for kind in ("bounding", "effective", "permitted")},
            dict.fromkeys(
                ("bounding", "effective", "permitted"), sorted(f"CAP_{name}" for name in container["capabilities"])
            ),
        ),
        "inheritable": (process["capabilities"].get("inheritable") or [], []),
        "no_new_privileges": (process["noNewPrivileges"], True),
        "mounts": (
            {name: (row["source"], "ro" in row["options"] or "rro" in row["options"]) for name, row in mounts.items()}
            | {"": ("", False)},
            {name: (row["source"], "ro" in row["options"] or "rro" in row["options"]) for name, row in mounts.items()}
            | {row["target"]: (row["source"], row["read_only"]) for row in container["mounts"]}
            | {"": ("", False)},
        ),
        "devices": (
            sorted(row["path"] for row in asked["linux"]["devices"] if row["path"].startswith("/dev/infiniband/")),
            ["/dev/infiniband/rdma_cm", *(f"/dev/infiniband/uverbs{number}" for number in range(4))],
        ),
        "namespaces": ({row["type"] for row in asked["linux"]["namespaces"]} & {"network", "ipc"}, set()),
        "shm": (mounts["/dev/shm"]["source"], "/dev/shm"),
    }
    return [f"{name}: asked {found}, specified {wanted}" for name, (found, wanted) in pairs.items() if found != wanted]


HOLD = "/etc/gb10-ring/watch-hold"


def killed(runtime: str, node: str) -> None:
    """Kill the process of a rank that systemd knows, of which it skips ExecStop: all ranks end, no container is left, every log is kept,
    and the next start serves."""
    on("spark1", f"touch {HOLD}")  # the watchdog has a story of its own
    known = incidents()
    pid = int(on(node, "systemctl show -P MainPID gb10-ring-engine.service"))
    assert pid > 0
    on(node, f"kill -KILL {pid}")
    left_over = (
        "systemctl show -P ActiveState gb10-ring-engine.service | grep -vx -e inactive -e failed; "
        f"{runtime} ps -aq; pgrep -f '[/]{image.ENGINE[1:]}'; ss -Hltn 'sport = :8000 or sport = :29500'; true"
    )
    began = time.monotonic()
    while any((found := on_all(left_over)).values()):
        assert time.monotonic() - began < 10, found
    name = new_incident(known)
    limit = time.monotonic() + 5
    wanted = ["incident.json", *(f"{one}.log" for one in NODES)]
    while any(set(wanted) - set(found.split()) for found in on_all(f"ls {INCIDENTS}/{name}").values()):
        assert time.monotonic() < limit
    for here in NODES:
        assert json.loads(on(here, f"cat {INCIDENTS}/{name}/incident.json"))["node"] == node
        logs = [on(here, f"cat {INCIDENTS}/{name}/{one}.log") for one in NODES]
        assert [rank for rank, log in enumerate(logs) if f"rank {rank} of 3 (gb10.ring)" not in log] == []
        assert "status=9/KILL" in logs[NODES.index(node)]
    assert on("spark2", "gb10-ring-group start --reason test") == "every rank runs"
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/health', timeout=5).status)"
    limit = time.monotonic() + 60
    while on("spark1", f'python3 -c "{ask}" 2>/dev/null || true') != "200":
        assert time.monotonic() < limit, on("spark1", "journalctl -q -n 40 -u gb10-ring-engine")
        time.sleep(0.5)
    on("spark1", f"rm {HOLD}")


def changed(output: str) -> int:
    """Changes of all nodes in the recap."""
    rows = [line for line in output.splitlines() if line.startswith(NODES)]
    return sum(int(line.partition("changed=")[2].split()[0]) for line in rows if "changed=" in line)
