# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults to plant on a verified lab of three, each with the checks that have to fail from it, and no others.

Those of one round are planted together, at places where none hides or causes another: one run shows all of them. The round `files and
settings` belongs to `make verify-test`, the others to `make verify-full`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

Failed = tuple[str, str]  # node, check

BASE = "/var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3-lab"
REVISION = f"$(readlink -f {BASE}/current)"
ROWS = f"{BASE}/engram/engram-local.json"
SHIFT = (
    "import json, sys; r = json.load(open(sys.argv[1])); r['layers']['1'][0] -= 8; json.dump(r, open(sys.argv[1], 'w'))"
)
UNIT = "gb10-ring-engine.service"
SHARD = f"{REVISION}/model-00003-of-00048.safetensors"
PRINT = f'sh -c \'echo $$ >/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs; exec systemd-cat sh -c "echo \\"$0\\"; sleep 0.5"\''
FIRMWARE = "for device in /sys/class/infiniband/*; do echo {} >$device/fw_ver; done"
# 198.19.4.3 is c613:0403 at the end of a GID
GIDS = 'for gid in /sys/class/infiniband/rocep1s0f0/ports/1/gids/*; do v=$(sed s/:c613:{}$/:c613:{}/ $gid); echo "$v" >$gid; done'
KERNEL = "/run/gb10-test-kernel"
SWAPS = "/run/gb10-lab/shadow/swaps"
FOREIGN = "/etc/sysctl.d/99-zz-other.conf"


@dataclass(frozen=True)
class Fault:
    """make, undo: shell commands on the node, or with `ctl ` in front, words for lab/ctl. id: the check that names it.

    found: part of what it found, on this node alone; cure: part of its cure. beside: what else has to fail from it. others: what
    checks of this id among those have to have found.
    """

    name: str
    node: str
    id: str
    make: str
    undo: str
    found: str
    cure: str
    beside: tuple[Failed, ...] = ()
    others: str = ""

    @property
    def failed(self) -> set[Failed]:
        return {(self.node, self.id), *self.beside}


@dataclass(frozen=True)
class Round:
    """Faults of one run of verify.yml. variables, tags: further ones of that run. before, after: commands for every node around it.

    full: left to `make verify-full`.
    """

    faults: tuple[Fault, ...]
    variables: Mapping[str, object] = field(default_factory=dict)
    tags: str = ""
    before: str = ""
    after: str = ""
    full: bool = True


# A clock that is two minutes ahead for Ansible's modules: containers of one machine share their clock.
PYTHON = "/usr/local/bin/gb10-test-python"
SKEW = "import time; real = time.time; time.time = lambda: real() + 120"
# Something else than the engine at another port of the head, which verify.yml is told to ask.
PORT = 8999
OTHER = (
    "import http.server, json; H = type('H', (http.server.BaseHTTPRequestHandler,), {'do_GET': lambda h: (h.send_response(200), "
    "h.end_headers(), h.wfile.write(json.dumps({'data': [{'id': 'another-model'}]}).encode()))}); "
    f"http.server.HTTPServer(('0.0.0.0', {PORT}), H).serve_forever()"
)
# What the stand-in for the engine is told to do wrong (lab/engine/standin/faults.py).
ENGINE = "mkdir -p /run/gb10-lab; echo {} >/run/gb10-lab/engine-faults"
WELL = "rm /run/gb10-lab/engine-faults"
SERVE = "systemd-run -q --unit gb10-test-api python3 -c {}; sleep 0.5"
GROUP, WATCH = "gb10-ring-group.service", "gb10-ring-watch.service"
AGAIN = "gb10-ring-group start --reason test"
# A docker that has one image, whose id is in a file: the group runs without containers, verify.yml is told that it does not.
IMAGE, OTHER_IMAGE = (f"sha256:{digit * 64}" for digit in "ab")
DOCKER = """#!/bin/sh
case "$1 $2" in
  'image ls') cat /run/gb10-test-image ;;
  'image inspect') echo '[{"Id": "'$(cat /run/gb10-test-image)'", "Size": 1000000}]' ;;
  info*) echo /var/lib ;;
esac
"""
CONTAINERS = f"test ! -e /usr/bin/docker && echo {IMAGE} >/run/gb10-test-image; printf %s {shlex.quote(DOCKER)} >/usr/bin/docker; chmod +x /usr/bin/docker"
SERVES = "bash -c 'for i in $(seq 150); do (exec 3<>/dev/tcp/198.18.0.1/8000) 2>/dev/null && exit 0; sleep 0.2; done; exit 1'"
DOWN = tuple((node, "engine.unit") for node in ("spark1", "spark2", "spark3"))

# What has to be found, at least.
WANTED = (
    *("cable", "mtu", "address", "foreign file", "swap on", "wrong sysctl", "missing file", "damaged file"),
    *("wrong config edit", "wrong row range", "stale partials", "disk over ceiling", "unit stopped", "rank dead"),
    *("health hanging", "NaN logprobs", "wrong model name", "Socket line", "odd kernel", "odd firmware", "stale GID"),
    *("guard not armed", "watchdog off", "clock skew", "bad image digest"),
)

QUICK = {"fabric_check_timeout": 3}  # a leg that is down is not waited for
# The last one prints into the log of the engine, which cannot be taken back.
ROUNDS = {
    "cables and devices": Round(
        (
            Fault(
                *("cable", "spark1", "fabric.carrier"),
                make="ctl cable cut cable1",
                undo="ctl cable heal cable1",
                found="no carrier on enp1s0f0np0",
                cure="seat the cable from port 0 of spark1",
                beside=(
                    ("spark2", "fabric.carrier"),
                    ("spark1", "fabric.cabling"),
                    *((node, check) for node in ("spark1", "spark2") for check in ("rdma.state",)),
                ),
            ),
            Fault(
                *("clock skew", "spark2", "preflight.clock"),
                make=f"mkdir /opt/gb10-test; echo '{SKEW}' >/opt/gb10-test/sitecustomize.py; "
                f"sed -i 's|^exec|exec env PYTHONPATH=/opt/gb10-test|' {PYTHON}",
                undo="rm -r /opt/gb10-test",
                found="s ahead of the controller",
                cure="timedatectl set-ntp true",
            ),
            # Before health hangs, or the watchdog would start the group anew.
            Fault(
                *("watchdog off", "spark1", "engine.watchdog"),
                make=f"systemctl stop {WATCH}",
                undo=f"systemctl start {WATCH}",
                found=f"{WATCH} does not run",
                cure="Run the engine role",
            ),
            Fault(
                *("health hanging", "spark1", "engine.health"),
                make=ENGINE.format("health-hangs"),
                undo=WELL,
                found="/health no answer within 5 s",
                cure="the head answers once every rank has joined",
            ),
            Fault(
                *("supervisor off", "spark2", "engine.group"),
                make=f"systemctl stop {GROUP}",
                undo=f"systemctl start {GROUP}",
                found=f"{GROUP} does not run",
                cure="run the engine role",
            ),
        ),
        {**QUICK, "ansible_python_interpreter": PYTHON},
        before=f"printf '#!/bin/sh\\nexec python3 \"$@\"\\n' >{PYTHON}; chmod +x {PYTHON}",
        after=f"rm {PYTHON}",
    ),
    "answers": Round(
        (
            Fault(
                *("NaN logprobs", "spark1", "engine.acceptance_logprobs"),
                make=ENGINE.format("nan-logprobs"),
                undo=WELL,
                found="not a number",
                cure="damaged shard",
            ),
            Fault(
                *("bad image digest", "spark3", "engine.image"),
                make=f"echo {OTHER_IMAGE} >/run/gb10-test-image",
                undo="true",
                found=f"no image {IMAGE}",
                cure="it brings the image from a node that has it",
            ),
        ),
        {"engine_acceptance": True, "engine_renderer": "docker", "engine_overrides": {"image_id": IMAGE}},
        tags="engine",
        before=CONTAINERS,
        after="rm /usr/bin/docker /run/gb10-test-image",
    ),
    "unit stopped": Round(
        (
            Fault(
                *("unit stopped", "spark3", "engine.unit"),
                make=f"systemctl stop {UNIT}; sleep 4",
                undo=AGAIN,
                found="inactive (dead); stopped by systemctl: systemd was asked to stop it",
                cure="run the engine role",
                beside=(*DOWN, ("spark1", "engine.health")),
                others="inactive (dead); ended with its group: spark3 was stopped by systemctl",
            ),
        ),
        tags="engine",
    ),
    "rank dead": Round(
        (
            Fault(
                *("rank dead", "spark2", "engine.unit"),
                make=f"systemctl kill -s KILL {UNIT}; sleep 4",
                undo=AGAIN,
                found="failed (failed), signal",
                cure="journalctl -u gb10-ring-engine",
                beside=(*DOWN, ("spark1", "engine.health"), ("spark1", "engine.watchdog")),
                others="failed (failed), exit-code, status 1",  # they end on seeing its connection close, before they are stopped
            ),
        ),
        tags="engine",
        # Or it would start the group again meanwhile.
        before=f"{SERVES}; systemctl stop {WATCH} 2>/dev/null || true",
        after=f"systemctl start {WATCH} 2>/dev/null || true",
    ),
    "files and settings": Round(
        (
            Fault(
                *("mtu", "spark2", "fabric.mtu"),
                make="ip link set enp1s0f1np1 mtu 1500",
                undo="ip link set enp1s0f1np1 mtu 9000",
                found="1500 bytes on enp1s0f1np1",
                cure="run the fabric role again",
                beside=(("spark1", "fabric.ping"),),
            ),
            Fault(
                *("address", "spark3", "fabric.address"),
                make="ip addr del 198.19.5.3/24 dev enP2p1s0f0np0",
                undo="ip addr add 198.19.5.3/24 dev enP2p1s0f0np0",
                found="no IPv4 address on enP2p1s0f0np0",
                cure="run the fabric role again",
                beside=(("spark1", "fabric.ping"),),
            ),
            Fault(
                *("odd firmware", "spark3", "fabric.firmware"),
                make=FIRMWARE.format("28.47.1026"),
                undo=FIRMWARE.format("28.45.4028"),
                found="28.47.1026",
                cure="firmware",
            ),
            Fault(
                *("swap on", "spark1", "memory.swap"),
                make=f"printf '/swap.img file 16777212 0 -2\\n' >>{SWAPS}",
                undo=f'left=$(grep -v swap.img {SWAPS}); echo "$left" >{SWAPS}',  # in place: it is mounted over /proc/swaps
                found="/swap.img",
                cure="swapoff",
                beside=(("spark1", "parity.swap"),),
            ),
            Fault(
                *("wrong sysctl", "spark2", "memory.sysctl"),
                make="echo 60 >/proc/sys/vm/swappiness",
                undo="echo 10 >/proc/sys/vm/swappiness",
                found="vm.swappiness = 60",
                cure="memory role",
            ),
            Fault(
                *("foreign file", "spark3", "memory.foreign"),
                make=f"echo vm.swappiness = 33 >{FOREIGN}",
                undo=f"rm {FOREIGN}",
                found="99-zz-other.conf",
                cure="99-zz-other.conf",
            ),
            Fault(
                *("odd kernel", "spark2", "parity.kernel"),
                make=f"echo 6.17.0-1026-nvidia >{KERNEL}; mount --bind {KERNEL} /proc/sys/kernel/osrelease",
                undo="umount /proc/sys/kernel/osrelease",
                found="6.17.0-1026-nvidia",
                cure="Boot the same kernel on every node",
            ),
            Fault(
                *("guard not armed", "spark3", "memory.guard"),
                make="systemctl stop gb10-ring-guard.service",
                undo="systemctl start gb10-ring-guard.service",
                found="gb10-ring-guard.service does not run",
                cure="Run the memory role",
            ),
            Fault(
                *("missing file", "spark1", "checkpoint.files"),
                make=f"mv {SHARD} {BASE}/kept",
                undo=f"mv {BASE}/kept {SHARD}",
                found="model-00003-of-00048.safetensors: missing",
                cure="only wrong files are fetched again",
            ),
            Fault(
                *("damaged file", "spark2", "checkpoint.files"),
                make=f"cp -a {SHARD} {BASE}/kept; printf x | dd of={SHARD} bs=1 seek=70000 conv=notrunc status=none; "
                f"touch -r {BASE}/kept {SHARD}",
                undo=f"cp -a {BASE}/kept {SHARD}; rm {BASE}/kept",
                found="model-00003-of-00048.safetensors: digest ",
                cure="wrong while size and time are right",
            ),
            Fault(
                *("wrong config edit", "spark3", "checkpoint.config"),
                make=f'cp -a {REVISION}/config.json {BASE}/kept; sed -i \'s/"num_attention_heads": 72/"num_attention_heads": 64/\' '
                f"{REVISION}/config.json",
                undo=f"cp -a {BASE}/kept {REVISION}/config.json; rm {BASE}/kept",
                found="64 heads in 9 groups",
                cure="config.json",
                beside=(("spark3", "checkpoint.files"),),
            ),
            Fault(
                *("wrong row range", "spark2", "checkpoint.engram"),
                make=f"cp -a {ROWS} {BASE}/rows; python3 -c {shlex.quote(SHIFT)} {ROWS}",
                undo=f"cp -a {BASE}/rows {ROWS}; rm {BASE}/rows",
                found="engram-local.json says rows",
                cure="only rows that are missing or wrong are fetched",
                beside=(("spark1", "checkpoint.engram_tiles"),),  # the head speaks for all
            ),
            Fault(
                *("stale GID", "spark3", "fabric.gid"),
                make=GIDS.format("0403", "0909"),
                undo=GIDS.format("0909", "0403"),
                found="no RoCE v2 GID for 198.19.4.3",
                cure="the GID follows the address",
            ),
            Fault(
                *("stale partials", "spark3", "checkpoint.unfinished"),
                make=f"mkdir -p {BASE}/staging/0123456789abcdef; head -c 5000000 /dev/zero >{BASE}/staging/0123456789abcdef/x.partial",
                undo=f"rm -r {BASE}/staging/0123456789abcdef",
                found="0123456789abcdef",
                cure="staging/0123456789abcdef",
            ),
            Fault(
                *("wrong model name", "spark1", "engine.health"),
                make=SERVE.format(shlex.quote(OTHER)),
                undo="systemctl stop gb10-test-api",
                found="with another-model",
                cure="see what listens there",
                beside=(("spark1", "engine.chat"), ("spark1", "engine.speculation")),
            ),
            Fault(
                *("Socket line", "spark1", "engine.transport"),
                make=f"{PRINT} 'NCCL INFO NET/Socket : Using [0]enP7s7:198.18.0.1<0>'",
                undo="true",
                found="NET/Socket : Using",
                cure="memlock",
            ),
            # As of a leg that was down while the engine role ran, and has been healed since.
            Fault(
                *("device left out", "spark3", "engine.devices"),
                make="cp -a /etc/gb10-ring/engine.json /etc/gb10-ring/kept; "
                'sed -i \'/"NCCL_IB_HCA"/s/,roceP2p1s0f1"/"/\' /etc/gb10-ring/engine.json',
                undo="mv /etc/gb10-ring/kept /etc/gb10-ring/engine.json",
                found="3 of 4 planned devices in NCCL_IB_HCA, without roceP2p1s0f1",
                cure="engine_restart_allowed",
            ),
            Fault(
                *("role that cannot look", "spark2", "verify.looked"),
                make="mv /etc/gb10-ring/engine.json /etc/gb10-ring/kept; echo '{' >/etc/gb10-ring/engine.json",
                undo="mv /etc/gb10-ring/kept /etc/gb10-ring/engine.json",
                found="engine.json is not JSON",
                cure="run verify.yml again",
            ),
            # Last: what others put aside needs room.
            Fault(
                *("disk over ceiling", "spark2", "checkpoint.disk"),
                make="fallocate -l $(($(df --output=avail -B1 /var/lib/gb10-ring | tail -1) - 20000000)) /var/lib/gb10-ring/filler",
                undo="rm /var/lib/gb10-ring/filler",
                found="of 1.0 GB used",
                cure="free space",
            ),
        ),
        {**QUICK, "checkpoint_verify": "full", "engine_port": PORT},
        before=SERVES,
        full=False,
    ),
}
