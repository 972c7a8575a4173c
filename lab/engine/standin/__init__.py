# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's stand-in for vLLM: real start-up checks, rendezvous, failure behaviour and HTTP API, but no model."""

NAME = "gb10-lab-stand-in"
VERSION = f"0.32.0+{NAME}"


class EngineError(Exception):
    """A reason not to start or not to go on; its text is the line in the log."""
