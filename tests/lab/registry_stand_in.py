# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of one image, read only, on the loopback of a node: the blobs of an OCI layout by their digests, and a list of requests.

registry_stand_in.py LAYOUT PORT LOG, where LAYOUT is what `docker save` wrote, unpacked.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LAYOUT, PORT, LOG = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._give(body=True)

    def do_HEAD(self) -> None:
        self._give(body=False)

    def _give(self, body: bool) -> None:
        kind, digest = self.path.rsplit("/", 2)[1:] if self.path.count("/") > 2 else ("", "")
        content = b"{}"
        if digest:
            content = (LAYOUT / "blobs" / digest.replace(":", "/")).read_bytes()
        self.send_response(200)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", str(len(content)))
        if kind == "manifests":
            self.send_header("Content-Type", json.loads(content)["mediaType"])
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if body:
            self.wfile.write(content)
            with LOG.open("a", encoding="ascii") as log:
                log.write(f"{kind} {digest}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: LOG has it."""


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
