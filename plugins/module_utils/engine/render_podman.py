# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank as a quadlet of Podman: a .container file, from which Podman's generator makes the unit. Keys of Podman 4.9 (Ubuntu 24.04)."""

from __future__ import annotations

from .render_docker import LABEL, bind, limit_flags, option_rows
from .spec import NAME as CONTAINER
from .spec import EngineSpec
from .unit import (
    CONFINED,
    GID_FILE,
    HASH_VARIABLE,
    INSTALL,
    assignment,
    cache_directory,
    command_line,
    command_lines,
    policy,
    quote,
    start_of_unit,
)

PATH = f"/etc/containers/systemd/{CONTAINER}.container"
PODMAN = "/usr/bin/podman"
_GPU = "nvidia.com/gpu"  # as the container device interface of the NVIDIA toolkit calls it
_KILL_MARGIN_S = 15


def render(spec: EngineSpec) -> dict[str, str]:
    """The quadlet by its path."""
    if spec.container is None:
        raise ValueError(f"renderer {spec.renderer} runs no container")
    container, stop = spec.container, spec.limits.stop_timeout_s
    # Podman refuses a size of /dev/shm together with the host's own, where Docker takes it and does nothing with it.
    limits = [(flag, value) for flag, value in limit_flags(spec.limits) if flag != "--shm-size"]
    more = [*limits, ("--ipc", "host"), ("--pull", "never"), ("--stop-timeout", str(stop))]
    lines = [
        *start_of_unit(spec),
        "[Container]",
        f"ContainerName={CONTAINER}",
        f"Image={container.image}",
        f"Label={LABEL}={spec.hash}",
        "Network=host",
        "NoNewPrivileges=true",
        "DropCapability=all",
        *(f"AddCapability={capability}" for capability in container.capabilities),
        *(f"AddDevice={device}" for device in container.devices),
        *([f"AddDevice={_GPU}={container.gpus}"] if container.gpus else []),
        *(f"Mount={quote(bind(mount), expand_dollar=False)}" for mount in container.mounts),
        *([f"EnvironmentFile={GID_FILE}"] if spec.gid_variables else []),
        *(assignment(name, value) for name, value in sorted(spec.env.items())),
        *(f"PodmanArgs={flag}={value}" for flag, value in more),
        f"PodmanArgs={command_line([f'--entrypoint={spec.argv[0]}'])}",
        f"Exec={command_lines(option_rows(spec.argv[1:]))}",
        "",
        "[Service]",
        assignment(HASH_VARIABLE, spec.hash),
        "# The first removal after conmon was killed only notes that the container has ended (conmon exited prematurely). Podman's own follows.",
        f"ExecStopPost=-{command_line([PODMAN, 'rm', '--force', '--ignore', '--time', '0', CONTAINER])}",
        *policy(spec, stop + _KILL_MARGIN_S),
        *cache_directory(spec),
        "# Of the container too. Podman mounts it and makes its control group, so the unit gets no file system of its own.",
        *CONFINED,
        *INSTALL,
    ]
    return {PATH: "\n".join(lines) + "\n"}
