# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH: one client key and one host key a node, made once for all instances, so that known_hosts is fixed too."""

from __future__ import annotations

from pathlib import Path

from . import network
from .base import locked
from .instance import MAX_NODES, Instance, node_address, node_name
from .procs import run

CLIENT = "id_ed25519"


def host_key(instance: Instance, name: str) -> Path:
    return instance.keys / f"{name}_ssh_host_ed25519_key"


def ensure(instance: Instance) -> None:
    """Make the keys that are missing, and known_hosts."""
    with locked(instance.shared / "keys.lock"):
        instance.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = []
        for path, comment in _wanted(instance):
            if not path.with_name(path.name + ".pub").exists():
                path.unlink(missing_ok=True)
                run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])
        for number in range(1, MAX_NODES + 1):
            public = host_key(instance, node_name(number)).with_suffix(".pub").read_text(encoding="ascii").split()
            known.append(f"{node_name(number)},{node_address(number)} {public[0]} {public[1]}\n")
        (instance.keys / "known_hosts").write_text("".join(known), encoding="ascii")


def _wanted(instance: Instance) -> list[tuple[Path, str]]:
    hosts = [(host_key(instance, node_name(number)), node_name(number)) for number in range(1, MAX_NODES + 1)]
    return [(instance.keys / CLIENT, "gb10.ring lab"), *hosts]


def client_config(instance: Instance) -> str:
    """An ssh_config that reaches the nodes from the controller namespace, and asks nothing."""
    names = [node_name(number) for number in range(1, MAX_NODES + 1)]
    parts = [
        f"Host {name}\n  HostName {node_address(number)}\n  HostKeyAlias {name}\n"
        for number, name in enumerate(names, 1)
    ]
    parts.append(
        f"Host {' '.join(names)} 198.18.0.*\n"
        "  User root\n"
        f'  IdentityFile "{instance.keys / CLIENT}"\n'
        "  IdentitiesOnly yes\n"
        f'  UserKnownHostsFile "{instance.keys / "known_hosts"}"\n'
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  PasswordAuthentication no\n"
        "  ConnectTimeout 5\n"
        "  ServerAliveInterval 5\n"
        "  ServerAliveCountMax 3\n"
        "  LogLevel ERROR\n"
    )
    return "".join(parts)


def ssh(instance: Instance, name: str, *options: str) -> list[str]:
    """argv that starts an SSH session with the node from wherever the caller is."""
    return [*network.enter(instance), "ssh", "-F", str(instance.ssh_config), *options, name]
