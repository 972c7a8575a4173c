# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves a GGUF model with llama.cpp's OpenAI-compatible server on loopback: serve.py FILE PORT, until standard input ends."""

from __future__ import annotations

import sys

import xllamacpp


def main(path: str, port: str) -> None:
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.model_alias = {"tiny"}
    settings.port = int(port)
    settings.n_ctx, settings.n_parallel = 16384, 4
    settings.cpuparams.n_threads = 2
    settings.endpoint_metrics = True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
