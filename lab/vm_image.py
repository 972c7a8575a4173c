# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk image of the lab's virtual machines: the nodes' root file system under a layer with Debian's own kernel.

Built once into the base's folder, named by a hash of its own recipe, and removed with the base.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
from pathlib import Path

from . import base
from .base import REPOSITORY_IN_NODE, SUITE
from .cabling import NETDEVS, RAILS
from .instance import Instance, LabError
from .procs import run

MACHINES = {"x86_64": "amd64"}  # machine name of the kernel -> what Debian calls it
KERNEL = "linux-image-{architecture}"  # the cloud kernel lacks the RDMA subsystem
# From the mirror the kernel; the rest is in the nodes' repository too, and is there already to spare minutes of emulated apt.
PACKAGES = ("initramfs-tools", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "perftest", "rdma-core")
FILES = Path(__file__).resolve().parent / "vm_rootfs"  # copied over the root file system as they are
IMAGE_SIZE = "3G"  # sparse; about a third is used
DEBOOTSTRAP = Path("/usr/sbin/debootstrap")
FABRIC_NETDEVS = tuple(NETDEVS[0, rail] for rail in RAILS)  # port 0 is cabled; port 1 is absent, as hot-plug leaves it

# Run in a mount namespace of its own ($1 the base, $2 the layer's folder, $3 the script), so that no mount outlives it.
BUILD = """
set -eu
mount -t overlay gb10-lab-vm -o "lowerdir=$1/rootfs,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount --bind "$1/repo" "$2/root{repo}"
mount -t proc proc "$2/root/proc"
chroot "$2/root" /bin/sh -euc "$3"
umount "$2/root/proc"
cp "$2"/root/boot/vmlinuz-* "$2/kernel"
cp "$2"/root/boot/initrd.img-* "$2/initrd"
mkfs.ext4 -q -F -m 0 -d "$2/root" "$2/root.img" {size}
"""
# No initrd is made by the packages: the one at the end holds only the drivers of the disk, so that it starts quickly.
INSTALL = """
export DEBIAN_FRONTEND=noninteractive INITRD=No
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -q update
apt-get -q -y --no-install-recommends install {packages}
rm -f /usr/sbin/policy-rc.d /etc/apt/sources.list.d/gb10-lab-build.list /etc/apt/apt.conf.d/99gb10-lab-build
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*
apt-get -q update
printf 'MODULES=list\\nBUSYBOX=n\\n' >/etc/initramfs-tools/conf.d/gb10-lab
printf '%s\\n' ext4 virtio_blk virtio_pci >/usr/share/initramfs-tools/modules.d/gb10-lab
unset INITRD
update-initramfs -c -k all
"""
# What the nodes in namespaces need, and a machine with a kernel of its own does not; the RDMA devices of this one.
FINISH = """
systemctl -q disable gb10-lab-shadow gb10-lab-rdma
systemctl -q unmask systemd-udev-trigger.service
systemctl -q mask serial-getty@ttyS0.service
systemctl -q enable {units}
rm -f /etc/systemd/system/systemd-sysctl.service.d/gb10-lab.conf /etc/systemd/system/systemd-udevd.service.d/gb10-lab.conf
rm -f /etc/resolv.conf
"""


def default_mirror(script: str) -> str:
    """The mirror that debootstrap takes when none is named, as its own script says."""
    found = re.search(r'^DEF_MIRROR="?([^"\s]+)', script, flags=re.MULTILINE)
    if not found:
        raise LabError("debootstrap names no mirror. Cure: set LAB_DEBIAN_MIRROR")
    return found[1]


def architecture(machine: str) -> str:
    """Debian's name of the machine's architecture. Raises LabError for one that these machines are not made for."""
    if machine not in MACHINES:
        raise LabError(f"virtual machines of the lab need {', '.join(MACHINES)}, and this is {machine}")
    return MACHINES[machine]


def script(architecture_name: str) -> str:
    """What is run inside the layer."""
    packages = (KERNEL.format(architecture=architecture_name), *PACKAGES)
    units = " ".join(f"gb10-lab-rxe@{netdev}.service" for netdev in FABRIC_NETDEVS)
    return INSTALL.format(packages=" ".join(packages)) + FINISH.format(units=units)


def recipe(architecture_name: str) -> str:
    """A hash of all that the layer is made from."""
    digest = hashlib.sha256(repr((BUILD, IMAGE_SIZE, script(architecture_name))).encode())
    for path in sorted(FILES.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def ensure(instance: Instance, built: Path) -> Path:
    """The folder with `root.img`, `kernel` and `initrd` over the base in `built`; made when it is absent."""
    name = architecture(platform.machine())
    place = built / f"vm-{recipe(name)}"
    if not place.exists():
        with base.locked(instance.shared / "base.lock"):
            if not place.exists():
                print("lab: building the disk of the virtual machines (once, about a minute)", flush=True)
                for old in built.glob("vm-*"):
                    shutil.rmtree(old)
                _build(built, place, script(name))
    return place


def _build(built: Path, place: Path, text: str) -> None:
    """Make the layer beside its place, then rename: a broken build leaves nothing that could be taken for one."""
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for part in ("upper", "work", "root"):
        (fresh / part).mkdir(parents=True)
    shutil.copytree(FILES, fresh / "upper", dirs_exist_ok=True)
    sources, settings = fresh / "upper/etc/apt/sources.list.d", fresh / "upper/etc/apt/apt.conf.d"
    sources.mkdir(parents=True)
    settings.mkdir()
    shutil.copyfile("/etc/resolv.conf", fresh / "upper/etc/resolv.conf")
    archive = (base.mirror() or [default_mirror(DEBOOTSTRAP.read_text(encoding="utf-8"))])[0]
    (sources / "gb10-lab-build.list").write_text(f"deb {archive} {SUITE} main\n", encoding="utf-8")
    (settings / "99gb10-lab-build").write_text(base.apt_proxies(), encoding="utf-8")
    wrapper = BUILD.format(repo=REPOSITORY_IN_NODE, size=IMAGE_SIZE)
    run(["unshare", "--mount", "sh", "-c", wrapper, "sh", built, fresh, text], timeout=1800)
    for part in ("upper", "work", "root"):
        shutil.rmtree(fresh / part)
    fresh.rename(place)
