# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank as a program of the node: the systemd unit."""

from __future__ import annotations

from .spec import EngineSpec
from .unit import (
    CONFINED,
    CONFINED_PLACES,
    GID_FILE,
    HASH_VARIABLE,
    INSTALL,
    NAME,
    assignment,
    cache_directory,
    command_line,
    environment_lines,
    policy,
    quote,
    start_of_unit,
)

PATH = f"/etc/systemd/system/{NAME}"


def render(spec: EngineSpec) -> dict[str, str]:
    """The unit by its path."""
    lines = [
        *start_of_unit(spec),
        "[Service]",
        "Type=simple",
        f"WorkingDirectory={spec.working_directory.replace('%', '%%')}",
        *environment_lines(spec.env),
        assignment(HASH_VARIABLE, spec.hash),
        *([f"EnvironmentFile=-{GID_FILE}"] if spec.gid_variables else []),
        f"ExecStart={command_line(spec.argv)}",
        *policy(spec, spec.limits.stop_timeout_s),
        *cache_directory(spec),
        f"ReadOnlyPaths={quote(spec.model['root'], expand_dollar=False)}",
        "NoNewPrivileges=true",
        *CONFINED,
        *CONFINED_PLACES,
        *INSTALL,
    ]
    return {PATH: "\n".join(lines) + "\n"}
