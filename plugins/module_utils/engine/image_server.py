# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives one container image to neighbours, as the stream that docker or podman makes of it: read only, behind a token, on given addresses.

A stream that ends early is told from a whole one by its last chunk, which only follows when the program that made it has said that
it is done. Run as a program by image_unit.py, with a file of settings that it deletes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from ..checkpoint.peer_server import Door, notify, serving

_SLICE = 1 << 20
_LAST = b"0\r\n\r\n"


@dataclass
class Giver(Door):
    """What the server gives away. name: what requests have to ask for. command: what writes the image to its standard output."""

    name: str
    command: list[str]
    running: set[subprocess.Popen[bytes]] = field(default_factory=set)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gb10-ring", ""
    timeout = 300.0
    room: Giver

    def do_GET(self) -> None:
        name = self.room.path(self.path)
        if name != self.room.name:
            self.send_response(403 if name is None else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with subprocess.Popen(self.room.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as made:
            self.room.running.add(made)
            try:
                self._stream(made)
            finally:
                made.kill()  # of no effect once it has ended
                self.room.running.discard(made)

    def _stream(self, made: subprocess.Popen[bytes]) -> None:
        """The image in chunks. What the program says of a failure goes to the journal."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if made.stdout is None:
            return
        while piece := made.stdout.read(_SLICE):
            self.room.asked_at = time.monotonic()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if made.wait() == 0:
            self.wfile.write(_LAST)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the token is in every request line."""


def wait(room: Giver, stop: threading.Event, idle_s: float, pace_s: float = 1.0) -> None:
    """Until told to stop, or until nobody has taken anything for a while."""
    while not stop.wait(pace_s):
        if not room.running and time.monotonic() - room.asked_at > idle_s:
            return


def main(settings_path: str) -> None:
    path = Path(settings_path)
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    room = Giver(settings["name"], settings["command"], token=settings["token"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        with serving(room, settings["listen"], settings["port"], Handler):
            notify("READY=1")
            wait(room, stop, settings["idle_s"])
    except OSError as error:
        raise SystemExit(f"cannot listen on {error.strerror}") from error  # the journal has it, the unit has failed


if __name__ == "__main__":
    main(sys.argv[1])
