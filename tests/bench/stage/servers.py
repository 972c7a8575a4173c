# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two servers of the benchmark on loopback: nginx, and SeaweedFS with an S3 interface. Both count what they send."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

BUCKET = "bench"
PARTS = TransferConfig(multipart_threshold=64 << 20, multipart_chunksize=64 << 20, max_concurrency=4)


@dataclass(frozen=True)
class Server:
    """base: address of the directory with the files. keys: of S3, empty for a web server. ca: of its certificate."""

    name: str
    base: str
    sent_from: Path | str
    keys: tuple[str, str] = ("", "")
    ca: str = ""

    @property
    def endpoint(self) -> str:
        return "/".join(self.base.split("/")[:3])

    def sent(self) -> int:
        """Bytes that it has sent so far."""
        if isinstance(self.sent_from, Path):
            return sum(int(line) for line in self.sent_from.read_text(encoding="ascii").split())
        with urllib.request.urlopen(self.sent_from, timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r"^SeaweedFS_s3_bucket_traffic_sent_bytes_total\{[^}]*\} (\S+)", text, flags=re.MULTILINE)
        return int(sum(float(value) for value in found))


def free_port() -> int:
    """A port that is free together with the one 10,000 above it, where SeaweedFS serves gRPC."""
    while True:
        port = 20000 + secrets.randbelow(30000)
        with socket.socket() as low, socket.socket() as high, contextlib.suppress(OSError):
            low.bind(("127.0.0.1", port))
            high.bind(("127.0.0.1", port + 10000))
            return port


def certificate(work: Path) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and its key."""
    pem, key = work / "tls.pem", work / "tls.key"
    if not pem.exists():
        name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        argv = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            key,
            "-out",
            pem,
            *name,
        ]
        subprocess.run(argv, check=True, capture_output=True)
    return pem, key


@contextlib.contextmanager
def nginx(work: Path, source: Path, tls: bool) -> Iterator[Server]:
    """nginx on a free port, with sendfile, one worker a core."""
    port, home = free_port(), work / "nginx"
    home.mkdir(exist_ok=True)
    log = home / "sent"
    log.write_text("", encoding="ascii")
    pem, key = certificate(work)
    listen = f"listen 127.0.0.1:{port}" + (f" ssl; ssl_certificate {pem}; ssl_certificate_key {key}" if tls else "")
    temporary = "".join(
        f"{what}_temp_path {home}/{what}; " for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "conf").write_text(
        f"daemon off; worker_processes auto; pid {home}/pid; error_log {home}/error;\n"
        f"events {{ worker_connections 512; }}\n"
        f"http {{ log_format sent '$bytes_sent'; access_log {log} sent; sendfile on; tcp_nopush on; autoindex on; "
        f"{temporary}\n server {{ {listen}; root {source.parent}; }} }}\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(["nginx", "-c", home / "conf", "-e", home / "error"])
    scheme = "https" if tls else "http"
    try:
        wait_for(port, process)
        yield Server(
            "nginx+tls" if tls else "nginx",
            f"{scheme}://127.0.0.1:{port}/{source.name}",
            log,
            ca=str(pem) if tls else "",
        )
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def seaweed(work: Path, source: Path) -> Iterator[Server]:
    """SeaweedFS as the lab runs it, holding the files with their CRC-64/NVME."""
    home = work / "weed"
    shutil.rmtree(home, ignore_errors=True)  # what a killed benchmark left would be read and filled again
    home.mkdir()
    keys = (secrets.token_hex(8), secrets.token_hex(16))
    identity = {"name": "bench", "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}], "actions": ["Admin"]}
    (home / "ids.json").write_text(json.dumps({"identities": [identity]}), encoding="ascii")
    ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port", "s3.port", "metricsPort")}
    argv = [
        Path(sys.executable).parent / "weed",
        "server",
        f"-dir={home}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
    ]
    argv += [f"-s3.config={home}/ids.json", *(f"-{name}={port}" for name, port in ports.items())]
    argv += [
        "-master.volumeSizeLimitMB=4096",
        "-volume.max=50",
        "-master.telemetry=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    argv += [f"-s3.localSocket={home}/s3.sock", f"-filer.localSocket={home}/filer.sock"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=home)
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    try:
        _upload(client(endpoint, keys), source, process)
        metrics = f"http://127.0.0.1:{ports['metricsPort']}/metrics"
        yield Server("s3", f"{endpoint}/{BUCKET}/{source.name}", metrics, keys)
    finally:
        process.kill()
        process.wait(20)
        for port in ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port + 10000}.sock"):
                left.unlink()


def client(endpoint: str, keys: tuple[str, str]) -> boto3.client:
    config = Config(s3={"addressing_style": "path"}, signature_version="s3v4", read_timeout=120)
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
        config=config,
    )


def _upload(store: boto3.client, source: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            store.create_bucket(Bucket=BUCKET)
            break
        except (BotoCoreError, ClientError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    extra = {"ChecksumAlgorithm": "CRC64NVME"}
    for path in sorted(source.iterdir()):
        store.upload_file(str(path), BUCKET, f"{source.name}/{path.name}", ExtraArgs=extra, Config=PARTS)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server does not listen")
        time.sleep(0.05)


def tls_context(server: Server) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=server.ca) if server.ca else None
