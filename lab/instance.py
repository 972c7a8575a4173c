# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an instance of the lab keeps what, and what its things are called. Pure, apart from reading the environment."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

# RFC 2544 sets 198.18.0.0/15 aside for tests: management below, fabric legs (198.19.0.0/16) from the roles.
LAB_NETWORK = "198.18.0.0/15"
MANAGEMENT_PREFIX = 24
CONTROLLER_ADDRESS = "198.18.0.254"
MANAGEMENT_NETDEV = "enP7s7"

MAX_NODES = 8
SHARED_NAMES = frozenset({"base", "layers", "keys", "checkpoint-1", "checkpoint-2"})
UNIX_PATH_ROOM = 66  # a control socket adds up to 40 characters; a unix socket path ends at 107


class LabError(Exception):
    """An expected failure of the lab; its text is the message for the user."""


def node_name(number: int) -> str:
    return f"spark{number}"


def node_address(number: int) -> str:
    return f"198.18.0.{number}"


@dataclass(frozen=True)
class Instance:
    """One lab: its name, and everything that follows from the name and the checkout."""

    name: str
    checkout: Path = CHECKOUT

    @property
    def tag(self) -> str:
        """Prefix of everything of this instance that the machine sees; differs between checkouts and instances."""
        digest = hashlib.sha256(f"{self.checkout}\0{self.name}".encode()).hexdigest()
        return f"gb10-{digest[:6]}"

    @property
    def shared(self) -> Path:
        return self.checkout / ".lab"

    @property
    def directory(self) -> Path:
        return self.shared / self.name

    @property
    def base(self) -> Path:
        """Link to the root file system and repository that this instance's nodes were made from."""
        return self.directory / "base"

    @property
    def layer(self) -> Path:
        """Link to what this instance's nodes have on top of the base; absent without a layer."""
        return self.directory / "layer"

    @property
    def keys(self) -> Path:
        return self.shared / "keys"

    @property
    def state_file(self) -> Path:
        return self.directory / "state.json"

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def credentials(self) -> Path:
        return self.directory / "aws-credentials"

    @property
    def sockets(self) -> Path:
        """Folder of unix sockets: in the instance, or under /run where that path is too long for one."""
        inside = self.directory / "run"
        return inside if len(str(inside)) <= UNIX_PATH_ROOM else Path("/run") / self.tag

    @property
    def control_path(self) -> Path:
        """Folder of Ansible's SSH control sockets."""
        return self.sockets / "cp"

    def netns(self, what: str) -> str:
        """Name of a network namespace: `ctl`, `cables`, or a node's name."""
        return f"{self.tag}-{what}"

    def netns_path(self, what: str) -> Path:
        return Path("/run/netns") / self.netns(what)

    def node(self, name: str) -> Path:
        return self.directory / "nodes" / name

    def log(self, name: str) -> Path:
        return self.directory / "log" / f"{name}.log"

    def record(self, name: str) -> Path:
        """Where the pid and start time of a process that the lab started is kept."""
        return self.directory / "run" / f"{name}.json"


def instances(sample: Instance) -> list[Instance]:
    """All instances of the sample's checkout that have a folder, running or not."""
    found = []
    for path in sorted(sample.shared.glob("*/run")):
        if path.parent.name not in SHARED_NAMES:
            found.append(Instance(path.parent.name, sample.checkout))
    return found


def instance_name(option: str | None, environment: dict[str, str] | None = None) -> str:
    """The instance to use: --instance, else LAB_INSTANCE, else `default`. Raises LabError for a name that cannot be one."""
    name = option or (os.environ if environment is None else environment).get("LAB_INSTANCE") or "default"
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise LabError(f"instance {name!r}: lower-case letters, digits and '-' are allowed, at most 31 characters")
    if name in SHARED_NAMES:
        raise LabError(f"instance {name!r}: taken by what all instances share; choose another name")
    return name
