# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system that all nodes share (Debian trixie) and the package repository that they install from.

Built once into .lab/base/RECIPE, named by a hash of what it is built from: a changed recipe builds another one, and labs that
run keep theirs. Bases that no lab uses any more go when a new one is built.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .instance import Instance, LabError
from .procs import run

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = (
    *(
        "ca-certificates",
        "dbus",
        "ethtool",
        "iproute2",
        "iputils-ping",
        "kmod",
        "netplan.io",
        "nftables",
        "openssh-server",
        "procps",
    ),
    *("python3", "python3-apt", "systemd", "systemd-resolved", "systemd-sysv", "udev"),
)
# What the roles install, and what the tests of other machines need (a node whose ports NetworkManager manages, one with an OOM daemon)
REPOSITORY_PACKAGES = (
    "earlyoom",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "network-manager",
    "perftest",
    "rdma-core",
)
REPOSITORY_IN_NODE = "/srv/gb10-lab-repo"
FILES = Path(__file__).resolve().parent / "node" / "rootfs"  # copied over the root file system as they are
CONTROL_FIELDS = ("Filename", "Size", "SHA256")

# Run in a mount namespace of its own ($1 the root file system, $2 the repository), so that no mount outlives it.
CHROOT = """
set -eu
mount -t proc proc "$1/proc"
mount --bind "$2" "$1{repo}"
exec chroot "$1" /bin/sh -euc "$3"
"""
DOWNLOAD = """
export DEBIAN_FRONTEND=noninteractive
rm -f /var/cache/apt/archives/*.deb
apt-get -q update
apt-get -q -y --no-install-recommends --download-only install {packages}
mv /var/cache/apt/archives/*.deb {repo}/
"""
FINISH = """
systemctl -q enable systemd-networkd ssh gb10-lab-shadow gb10-lab-rdma
systemctl -q mask systemd-networkd-wait-online.service systemd-udev-trigger.service getty@tty1.service
systemctl -q disable systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
  fstrim.timer 2>/dev/null || true
rm -rf /var/lib/apt/lists/*
apt-get -q update
"""


def recipe() -> str:
    """A hash of all that the base is made from."""
    digest = hashlib.sha256()
    digest.update(repr((SUITE, PACKAGES, REPOSITORY_PACKAGES, CHROOT, DOWNLOAD, FINISH)).encode())
    for path in sorted(FILES.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(FILES)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def folder(instance: Instance) -> Path:
    return instance.shared / "base" / recipe()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for the block; a second caller waits. The file may be removed by who holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a", encoding="ascii") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(handle.fileno()).st_ino:
                yield
                return


def ensure(instance: Instance) -> Path:
    """The base's folder, built when it is absent."""
    place = folder(instance)
    if not place.exists():
        with locked(instance.shared / "base.lock"):
            if not place.exists():
                print("lab: building the root file system of the nodes (once, about two minutes)", flush=True)
                build(instance, place)
                _remove_unused(instance, place)
    return place


def _remove_unused(instance: Instance, place: Path) -> None:
    used = {link.resolve() for link in instance.shared.glob("*/base") if link.is_symlink()}
    for other in place.parent.iterdir():
        if other != place and other.resolve() not in used:
            shutil.rmtree(other, ignore_errors=True)


def build(instance: Instance, place: Path) -> None:
    """Make the base beside its place, then rename: a broken build leaves nothing that could be taken for one."""
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    rootfs, repo = fresh / "rootfs", fresh / "repo"
    repo.mkdir(parents=True)
    _debootstrap(rootfs, instance.shared / "deb-cache")
    shutil.copytree(FILES, rootfs, dirs_exist_ok=True)
    (rootfs / REPOSITORY_IN_NODE.lstrip("/")).mkdir()
    for name in ("/opt/gb10-lab/node", "/opt/gb10-lab/engine", "/opt/gb10-lab/checkpoint", "/var/lib/gb10-ring"):
        (rootfs / name.lstrip("/")).mkdir(parents=True)
    _fill_repository(rootfs, repo)
    _only_repository(rootfs)
    _chroot(rootfs, repo, FINISH)
    _strip(rootfs)
    fresh.rename(place)


def mirror_of(sources: str) -> str | None:
    """The first Debian archive in apt's source lists (both formats), None when there is none."""
    for pattern in (r"^URIs:\s*(\S+/debian/?)(?:\s|$)", r"^deb\s+(?:\[[^]]*\]\s+)?(\S+/debian/?)\s"):
        found = re.search(pattern, sources, re.MULTILINE)
        if found:
            return found.group(1)
    return None


def mirror() -> list[str]:
    """The mirror as debootstrap's last argument: LAB_DEBIAN_MIRROR, else this machine's own, else debootstrap's default."""
    asked = os.environ.get("LAB_DEBIAN_MIRROR")
    if asked:
        return [asked]
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in lists if path.suffix in {".list", ".sources"} and path.is_file()
    )
    own = mirror_of(text)
    return [own] if own else []


def _debootstrap(rootfs: Path, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", f"--cache-dir={cache}"]
    if not Path(KEYRING).exists():
        raise LabError(f"{KEYRING} is absent: run `make lab-deps`")
    run([*argv, f"--keyring={KEYRING}", SUITE, rootfs, *mirror()], timeout=1800)


def _chroot(rootfs: Path, repo: Path, script: str) -> str:
    wrapper = CHROOT.format(repo=REPOSITORY_IN_NODE)
    return run(["unshare", "--mount", "sh", "-c", wrapper, "sh", rootfs, repo, script], timeout=900).stdout


def apt_proxies() -> str:
    """This machine's proxies as apt settings."""
    lines = run(["apt-config", "dump"]).stdout.splitlines()
    return "".join(f"{line}\n" for line in lines if re.match(r"Acquire::https?::Proxy", line))


def _fill_repository(rootfs: Path, repo: Path) -> None:
    """Download the packages and whatever they need that the base lacks, and index them."""
    resolver = rootfs / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    settings = rootfs / "etc/apt/apt.conf.d/99gb10-lab-build"
    settings.write_text(apt_proxies(), encoding="utf-8")
    _chroot(rootfs, repo, DOWNLOAD.format(packages=" ".join(REPOSITORY_PACKAGES), repo=REPOSITORY_IN_NODE))
    settings.unlink()
    index = "\n".join(stanza(deb) for deb in sorted(repo.glob("*.deb")))
    (repo / "Packages").write_text(index, encoding="utf-8")


def stanza(deb: Path) -> str:
    """The package's entry in a Packages file: its control fields, and where and what the file is."""
    fields = run(["dpkg-deb", "-f", deb]).stdout.rstrip("\n")
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    values = (f"./{deb.name}", str(deb.stat().st_size), digest)
    return fields + "\n" + "".join(f"{name}: {value}\n" for name, value in zip(CONTROL_FIELDS, values, strict=True))


def _only_repository(rootfs: Path) -> None:
    apt = rootfs / "etc/apt"
    for path in [apt / "sources.list", *(apt / "sources.list.d").glob("*")]:
        path.unlink(missing_ok=True)
    line = f"deb [trusted=yes] file:{REPOSITORY_IN_NODE} ./\n"
    (apt / "sources.list.d/gb10-lab.list").write_text(line, encoding="ascii")


def _strip(rootfs: Path) -> None:
    """What must differ between nodes, or be absent on them."""
    for pattern in ("etc/ssh/ssh_host_*", "var/cache/apt/archives/*.deb", "var/lib/dbus/machine-id", "etc/resolv.conf"):
        for path in rootfs.glob(pattern):
            path.unlink()
    (rootfs / "etc/machine-id").write_text("", encoding="ascii")
