# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What some nodes have on top of the base: packages and files of a layer, built once, below a node's own disk.

Only labs that ask for a layer (`lab/ctl up --layer docker`) have it, so that no other lab builds, mounts or runs anything of it.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import base
from .instance import Instance, LabError
from .procs import run

# Docker and Podman as the distribution has them; crun is what Podman runs containers with.
PACKAGES = {
    "docker": ("containerd", "crun", "docker-cli", "docker.io", "iptables", "netavark", "passt", "podman", "runc"),
}
FILES = Path(__file__).resolve().parent / "layers"
# Directories that a container engine keeps images in: overlay file systems cannot lie on an overlay, so they get a disk of their own.
DISK = {"docker": ("docker", "containers", "containerd")}
DISK_MIB = 3072
# What containers need inside a node: to mount and to make device nodes; keys and BPF are what runc and crun ask the kernel for.
NSPAWN = {"docker": ("--capability=all", "--system-call-filter=@keyring bpf")}

# $1 the base, $2 the layer's own directory, $3 a work directory, $4 where to put both together, $5 files, $6 apt settings, $7 script.
BUILD = """
set -eu
mount -t overlay lab-layer -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount -t proc proc "$4/proc"
cp -aT "$5" "$4"
printf '%s' "$6" >"$4/etc/apt/apt.conf.d/99gb10-lab-build"
rm -f "$4/etc/resolv.conf"
cp /etc/resolv.conf "$4/etc/resolv.conf"
exec chroot "$4" /bin/sh -euc "$7"
"""
# With lists of its own: those of the base are for the lab's repository, which has not these packages.
INSTALL = """
export DEBIAN_FRONTEND=noninteractive
mkdir -p /tmp/apt/parts /tmp/apt/lists
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main" >/tmp/apt/list
apt() {{
  apt-get -q -o Dir::Etc::sourcelist=/tmp/apt/list -o Dir::Etc::sourceparts=/tmp/apt/parts -o Dir::State::lists=/tmp/apt/lists "$@"
}}
apt update
apt -y --no-install-recommends install {packages}
rm -rf /tmp/apt /usr/sbin/policy-rc.d /etc/apt/apt.conf.d/99gb10-lab-build /etc/resolv.conf
rm -rf /var/cache/apt/archives/*.deb /var/lib/docker /var/lib/containers /var/lib/containerd
systemctl -q enable docker containerd gb10-lab-containers
systemctl -q disable podman.socket podman.service podman-restart.service podman-auto-update.timer 2>/dev/null || true
"""
DEFAULT_MIRROR = "http://deb.debian.org/debian"


@dataclass(frozen=True)
class Layer:
    """A layer that is built. root: what it adds to the base."""

    name: str
    root: Path


def check(name: str) -> str:
    """The name, which may be empty. Raises LabError for a layer that there is not."""
    if name and name not in PACKAGES:
        raise LabError(f"layer {name!r}: one of {', '.join(sorted(PACKAGES))} is expected")
    return name


def recipe(name: str) -> str:
    """A hash of all that the layer is made from, the base among it."""
    digest = hashlib.sha256(repr((base.recipe(), PACKAGES[name], BUILD, INSTALL)).encode())
    for path in sorted((FILES / name).rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def folder(instance: Instance, name: str) -> Path:
    return instance.shared / "layers" / f"{name}-{recipe(name)}"


def ensure(instance: Instance, name: str) -> Layer:
    """The layer, built when it is absent; layers of this name that no lab uses go then."""
    place = folder(instance, name)
    if not place.exists():
        built = base.ensure(instance)
        with base.locked(instance.shared / "layers.lock"):
            if not place.exists():
                print(f"lab: building the layer {name} of the nodes (once, about a minute)", flush=True)
                _build(name, built / "rootfs", place)
                _remove_unused(instance, name, place)
    return Layer(name, place)


def _remove_unused(instance: Instance, name: str, place: Path) -> None:
    used = {link.resolve() for link in instance.shared.glob("*/layer") if link.is_symlink()}
    for other in place.parent.glob(f"{name}-*"):
        if other != place and other.resolve() not in used:
            shutil.rmtree(other, ignore_errors=True)


def _build(name: str, lower: Path, place: Path) -> None:
    """Make the layer beside its place, then rename: a broken build leaves nothing that could be taken for one."""
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for part in ("upper", "work", "root"):
        (fresh / part).mkdir(parents=True)
    mirror = (base.mirror() or [DEFAULT_MIRROR])[0]
    script = INSTALL.format(mirror=mirror, suite=base.SUITE, packages=" ".join(PACKAGES[name]))
    words = (lower, fresh / "upper", fresh / "work", fresh / "root", FILES / name, base.apt_proxies(), script)
    run(["unshare", "--mount", "sh", "-c", BUILD, "sh", *words], timeout=900)
    (fresh / "upper").rename(place)
    shutil.rmtree(fresh, ignore_errors=True)
