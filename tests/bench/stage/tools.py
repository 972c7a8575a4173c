# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copiers that are compared: how each fetches all files of a server into a directory, and what it checks on the way."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import source as sources
from servers import BUCKET, Server, client

RUNNER = Path(__file__).with_name("node.py")


@dataclass(frozen=True)
class Job:
    """One run of one tool. plan: of the checkpoint, with size and digest of each file."""

    server: Server
    plan: dict[str, Any]
    target: Path
    scratch: Path
    bin: Path

    @property
    def paths(self) -> list[str]:
        return [str(row["path"]) for row in self.plan["files"]]

    def addresses(self) -> dict[str, str]:
        """An address of each file that needs no key: signed for S3."""
        if not self.server.keys[0]:
            return {path: f"{self.server.base}/{path}" for path in self.paths}
        store, prefix = client(self.server.endpoint, self.server.keys), self.server.base.rpartition("/")[2]
        return {
            path: store.generate_presigned_url(
                "get_object", Params={"Bucket": BUCKET, "Key": f"{prefix}/{path}"}, ExpiresIn=3600
            )
            for path in self.paths
        }

    def environment(self) -> dict[str, str]:
        key, secret = self.server.keys
        ours = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}
        trust = {"SSL_CERT_FILE": self.server.ca} if self.server.ca else {}
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.scratch), **(ours if key else {}), **trust}


@dataclass(frozen=True)
class Command:
    argv: list[str]
    stdin: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """verified: what it compares of the bytes that came. servers: those it can read from."""

    name: str
    command: Callable[[Job], Command]
    verified: str
    servers: tuple[str, ...] = ("s3", "nginx", "nginx+tls")


def ours(job: Job) -> Command:
    """The node's process of checkpoint_stage, started as Ansible starts it: options on its standard input."""
    place = job.scratch / "sources"
    place.write_text(sources.render(sources.with_peers(job.addresses())), encoding="ascii")
    options = {"plan": job.plan, "root": str(job.target), "node": "bench", "disk_ceiling_percent": 100}
    pem = {"ca_pem": Path(job.server.ca).read_text(encoding="ascii")} if job.server.ca else {}
    return Command([sys.executable, str(RUNNER)], json.dumps({**options, "sources_file": str(place), **pem}))


def rclone(job: Job) -> Command:
    flags = ["--transfers", "8", "--multi-thread-streams", "8", "-q", "--config", "/dev/null"]
    if job.server.keys[0]:
        remote = f":s3,provider=Other,env_auth=true,endpoint='{job.server.endpoint}':" + "/".join(
            job.server.base.split("/")[3:]
        )
    else:
        remote, flags = ":http:", [*flags, "--http-url", job.server.base + "/"]
        if job.server.ca:
            flags += ["--ca-cert", job.server.ca]
    return Command(["rclone", "copy", remote, str(job.target), *flags], environment=job.environment())


def s5cmd(job: Job) -> Command:
    prefix = job.server.base.rpartition("/")[2]
    argv = ["s5cmd", "--endpoint-url", job.server.endpoint, "cp", f"s3://{BUCKET}/{prefix}/*", f"{job.target}/"]
    return Command(argv, environment=job.environment())


def aws(job: Job) -> Command:
    prefix = job.server.base.rpartition("/")[2]
    argv = ["aws", "--endpoint-url", job.server.endpoint, "s3", "cp", "--recursive", "--only-show-errors"]
    return Command([*argv, f"s3://{BUCKET}/{prefix}/", str(job.target)], environment=job.environment())


def curl(job: Job) -> Command:
    """One file after the other, each with a process of its own, as staging scripts do it."""
    rows = "".join(f"{path} {address}\n" for path, address in job.addresses().items())
    loop = 'while read -r path address; do curl -sSf -o "$1/$path" "$address" || exit 1; done'
    return Command(
        ["sh", "-c", loop, "curl", str(job.target)], rows, job.environment() | {"CURL_CA_BUNDLE": job.server.ca}
    )


def aria2c(job: Job) -> Command:
    rows = "".join(f"{address}\n out={path}\n" for path, address in job.addresses().items())
    flags = ["-q", "-x8", "-s8", "-j8", "--file-allocation=falloc", "-d", str(job.target), "-i", "-", "--no-conf"]
    trust = [f"--ca-certificate={job.server.ca}"] if job.server.ca else []
    return Command(["aria2c", *flags, *trust], rows, job.environment())


TOOLS = (
    Tool("gb10.ring", ours, "digest of every file"),
    Tool("rclone", rclone, "size"),
    Tool("s5cmd", s5cmd, "no", ("s3",)),
    Tool("aws s3 cp", aws, "no", ("s3",)),
    Tool("aria2c", aria2c, "no", ("nginx", "nginx+tls")),
    Tool("curl, sequential", curl, "no"),
)
