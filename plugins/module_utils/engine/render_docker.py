# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank as a container of Docker that runs in the foreground of a systemd unit: systemd alone starts it again, Docker never does."""

from __future__ import annotations

from .spec import NAME as CONTAINER
from .spec import Container, EngineSpec, Limits, Mount
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
    command_lines,
    policy,
    start_of_unit,
)

PATH = f"/etc/systemd/system/{NAME}"
DOCKER = "/usr/bin/docker"
LABEL = "gb10.ring.hash"
_KILL_MARGIN_S = 15  # after the container's own time to end, for Docker to say so


def render(spec: EngineSpec) -> dict[str, str]:
    """The unit by its path."""
    stop = spec.limits.stop_timeout_s
    lines = [
        *start_of_unit(spec, after=("docker.service",)),
        "[Service]",
        "Type=exec",
        "# Of the docker command, so that its process tells which configuration it runs. The engine's environment is in the command.",
        assignment(HASH_VARIABLE, spec.hash),
        "# A container of this name that outlived its unit. No other is touched.",
        f"ExecStartPre=-{_remove()}",
        f"ExecStart={command_lines(command(spec))}",
        f"ExecStop=-{command_line([DOCKER, 'stop', '-t', str(stop), CONTAINER])}",
        "# Docker's daemon runs the container, not this unit: when the docker command is killed, systemd skips ExecStop and finds nothing",
        "# of the container in the unit's control group. It would hold memory, ports and the rendezvous.",
        f"ExecStopPost=-{_remove()}",
        "# The two limits below are the docker command's; the engine's own are --ulimit and --oom-score-adj.",
        *policy(spec, stop + _KILL_MARGIN_S),
        *cache_directory(spec, "+"),  # as the daemon sees the node, not with the command's own /var/tmp
        "# What follows confines the docker command; the engine is confined by the options of `docker run`.",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=true",
        *CONFINED,
        *CONFINED_PLACES,
        *INSTALL,
    ]
    return {PATH: "\n".join(lines) + "\n"}


def _remove() -> str:
    return command_line([DOCKER, "rm", "--force", CONTAINER])


def command(spec: EngineSpec) -> list[list[str]]:
    """`docker run` with all its options, a group of words a row."""
    container = _container(spec)
    return [
        [DOCKER, "run", "--rm", "--name", CONTAINER, "--pull", "never", "--restart", "no", "--log-driver", "none"],
        ["--label", f"{LABEL}={spec.hash}"],
        ["--network", "host", "--ipc", "host", *(["--gpus", container.gpus] if container.gpus else [])],
        *([flag, value] for flag, value in limit_flags(spec.limits)),
        ["--stop-timeout", str(spec.limits.stop_timeout_s)],
        ["--security-opt", "no-new-privileges", "--cap-drop", "ALL"],
        *(["--cap-add", capability] for capability in container.capabilities),
        *(["--device", f"{device}:{device}"] for device in container.devices),
        *(["--mount", bind(mount)] for mount in container.mounts),
        *([["--env-file", GID_FILE]] if spec.gid_variables else []),
        *(["--env", f"{name}={value}"] for name, value in sorted(spec.env.items())),
        ["--entrypoint", spec.argv[0], container.image],
        *option_rows(spec.argv[1:]),
    ]


def _container(spec: EngineSpec) -> Container:
    if spec.container is None:
        raise ValueError(f"renderer {spec.renderer} runs no container")
    return spec.container


def limit_flags(limits: Limits) -> list[tuple[str, str]]:
    """Limits as docker and podman both take them. Without swap of its own a container cannot push the host into swapping."""
    memlock = "-1" if limits.memlock == "infinity" else limits.memlock
    memory = f"{limits.memory_gib}g"
    return [
        ("--shm-size", f"{limits.shm_gib}g"),
        ("--memory", memory),
        ("--memory-swap", memory),
        *([("--cpus", str(limits.cpus))] if limits.cpus else []),
        ("--ulimit", f"memlock={memlock}:{memlock}"),
        ("--ulimit", f"nofile={limits.nofile}:{limits.nofile}"),
        *([("--ulimit", f"stack={limits.stack}")] if limits.stack else []),
        ("--oom-score-adj", str(limits.oom_score_adjust)),
    ]


def bind(mount: Mount) -> str:
    """--mount, since --volume makes an empty directory of a source that is not there."""
    return f"type=bind,source={mount.source},target={mount.target}{',readonly' if mount.read_only else ''}"


def option_rows(words: tuple[str, ...]) -> list[list[str]]:
    """A row for each flag with its values, so that a diff shows the one that changed."""
    rows: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not rows:
            rows.append([word])
        else:
            rows[-1].append(word)
    return rows
