# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shlex
from dataclasses import replace
from itertools import pairwise

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import render, render_docker, render_podman, render_venv
from ansible_collections.gb10.ring.plugins.module_utils.engine.unit import GID_PROGRAM, ROWS_PROGRAM
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import ENGINE, GROUPS, golden_files

RING3 = GROUPS["vllm-tp3-ring-exl3"]


def spec_of(group=RING3, rank=1):
    return group.specs()[1][rank]


def lines(spec):
    return render.render(spec)[render.unit_path(spec)].splitlines()


def joined(spec):
    """The unit with lines that end in a backslash joined."""
    return render.render(spec)[render.unit_path(spec)].replace(" \\\n  ", " ").splitlines()


@pytest.mark.parametrize("path", sorted(golden_files()))
def test_golden_files(path):
    """After a change that is meant: fixtures/engine_groups.py, write_golden(), then read the diff."""
    assert golden_files()[path] == (ENGINE / "golden" / path).read_text(encoding="utf-8")


def test_there_are_no_other_golden_files():
    golden = ENGINE / "golden"
    found = {str(path.relative_to(golden)) for path in golden.rglob("*") if path.is_file()}
    assert found == set(golden_files())


@pytest.mark.parametrize(
    ("renderer", "path"),
    [("docker", render_docker.PATH), ("podman", render_podman.PATH)],
)
def test_files_of_a_node(renderer, path):
    spec = spec_of(RING3.with_renderer(renderer))
    assert list(render.render(spec)) == [render.RECORD, GID_PROGRAM, ROWS_PROGRAM, path]
    assert set(render.render(spec)) <= set(render.OWNED)
    assert render.unit_path(spec) == path
    assert render.enabled_by_systemctl(spec) is (renderer != "podman")


def test_kubernetes_writes_nothing_on_nodes():
    spec = spec_of(RING3.with_renderer("kubernetes"))
    with pytest.raises(ValueError, match="renderer kubernetes writes nothing on nodes"):
        render.render(spec)


def test_the_record_is_the_specification():
    spec = spec_of()
    record = json.loads(render.record(spec))
    assert record.pop("unit") == "gb10-ring-engine.service"
    assert record == spec.to_dict()
    assert len(record["hash"]) == 16


FILTERED = ["RestrictRealtime=true", "LockPersonality=true", "SystemCallArchitectures=native"]
HARDENED = [
    *FILTERED,
    "PrivateTmp=true",
    "ProtectHome=true",
    "ProtectSystem=full",
    "ProtectControlGroups=true",
    "ProtectKernelTunables=true",
    "RestrictSUIDSGID=true",
]
CAPABILITIES = ["IPC_LOCK", "CHOWN", "DAC_OVERRIDE", "FOWNER"]
COMMON = [
    "RequiresMountsFor=/var/lib/gb10-ring/checkpoints/published",
    "StartLimitIntervalSec=0",
    "RuntimeDirectory=gb10-ring-engine",
    "Restart=no",
    "LimitMEMLOCK=infinity",
    "LimitNOFILE=1048576",
    "OOMScoreAdjust=500",
    "WantedBy=multi-user.target",
]


@pytest.mark.parametrize(
    ("group", "more"),
    [
        (
            GROUPS["vllm-tp2-baremetal"],
            [
                *HARDENED,
                "NoNewPrivileges=true",
                "Type=simple",
                "WorkingDirectory=/opt/vllm/src",
                "CacheDirectory=gb10-ring-engine",
            ],
        ),
        (
            RING3,
            [
                *HARDENED,
                "NoNewPrivileges=true",
                "CapabilityBoundingSet=",
                "Type=exec",
                "After=network-online.target docker.service",
            ],
        ),
        (
            RING3.with_renderer("podman"),
            [
                *FILTERED,
                "NoNewPrivileges=true",
                "DropCapability=all",
                *(f"AddCapability={name}" for name in CAPABILITIES),
                "Network=host",
                "AddDevice=/dev/infiniband",
                "AddDevice=nvidia.com/gpu=all",
            ],
        ),
    ],
)
def test_what_every_unit_carries(group, more):
    spec = spec_of(group)
    found = lines(spec)
    assert [
        line for line in [*COMMON, *more, f"Environment=GB10_RING_ENGINE_HASH={spec.hash}"] if line not in found
    ] == []


@pytest.mark.parametrize("renderer", ["docker", "podman"])
@pytest.mark.parametrize(("ready_s", "boot_s"), [(60, 60), (30, 60), (1800, 1800)])
def test_systemd_waits_as_long_as_a_boot_does_for_the_links(renderer, ready_s, boot_s):
    """By default systemd gives a start up after 90 s."""
    group = RING3.with_renderer(renderer)
    found = lines(spec_of(replace(group, overrides={**group.overrides, "ready_timeout_s": ready_s})))
    assert f"TimeoutStartSec={boot_s + 60}" in found
    assert any(f"--wait 60 --boot-wait {boot_s} " in line for line in found)


@pytest.mark.parametrize("renderer", ["docker", "podman"])
def test_the_gids_are_looked_up_before_each_start(renderer):
    plain = spec_of(RING3.with_renderer(renderer))
    (probe,) = [line for line in lines(plain) if "engine-gid.py" in line]
    devices = " ".join(f"{device}={address}" for device, address in plain.gid_devices.items())
    program = "/usr/bin/python3 -I /etc/gb10-ring/engine-gid.py --wait 60 --boot-wait 3600"
    assert probe == f"ExecStartPre={program} -- /run/gb10-ring-engine {devices}"
    assert len(plain.gid_devices) == 4


@pytest.mark.parametrize(
    ("renderer", "reads"),
    [
        ("docker", "--env-file /run/gb10-ring-engine/gid.env"),
        ("podman", "EnvironmentFile=/run/gb10-ring-engine/gid.env"),
        ("venv", "EnvironmentFile=-/run/gb10-ring-engine/gid.env"),
    ],
)
def test_variables_that_take_the_index_come_from_the_lookup(renderer, reads):
    group = replace(
        GROUPS["sglang-tp4-engram"].with_renderer(renderer),
        overrides={**GROUPS["sglang-tp4-engram"].overrides, "renderer": renderer, "executable": "/usr/bin/python3"},
    )
    text = "\n".join(lines(spec_of(group)))
    assert reads in text
    assert "--variable B12X_ROCE_GID_INDEX" in text
    assert "B12X_ROCE_GID_INDEX=" not in text
    assert "gid.env" not in "\n".join(lines(spec_of()))


def run_line(spec):
    (found,) = [line.removeprefix("ExecStart=") for line in joined(spec) if line.startswith("ExecStart=")]
    return shlex.split(found)


def test_docker_runs_in_the_foreground_by_digest_and_never_restarts():
    spec = spec_of()
    words = run_line(spec)
    assert words[:2] == ["/usr/bin/docker", "run"]
    assert not {"-d", "--detach", "-t", "--tty", "--privileged"} & set(words)
    assert words[words.index("--pull") + 1] == "never"
    assert words[words.index("--restart") + 1] == "no"
    place = words.index("--entrypoint")
    assert words[place + 1] == "vllm"
    assert words[place + 2].endswith("@sha256:8dab469dd37e28c26612648079eb075eb3152dc2dacd8347c55a6f2aba037b54")
    assert tuple(words[place + 3 :]) == spec.argv[1:]


def test_docker_gets_the_environment_limits_and_mounts_of_the_specification():
    spec = spec_of()
    words = run_line(spec)
    given = [value for flag, value in pairwise(words) if flag == "--env"]
    assert dict(value.split("=", 1) for value in given) == dict(spec.env)
    pairs = list(pairwise(words))
    for pair in (
        ("--memory", "110g"),
        ("--memory-swap", "110g"),
        ("--shm-size", "8g"),
        ("--cpus", "8"),
        ("--ulimit", "memlock=-1:-1"),
        ("--oom-score-adj", "500"),
        ("--mount", f"type=bind,source={spec.model['root']},target=/models,readonly"),
        ("--mount", "type=bind,source=/var/lib/vllm-cache/dsv41,target=/cache"),
    ):
        assert pair in pairs
    assert [value for flag, value in pairs if flag == "--cap-add"] == CAPABILITIES
    assert {("--security-opt", "no-new-privileges"), ("--cap-drop", "ALL")} <= set(pairs)
    # Docker's daemon mounts it: made in the unit's own /var/tmp it would not be there.
    assert "ExecStartPre=+/usr/bin/mkdir -p /var/lib/vllm-cache/dsv41" in lines(spec)


def test_docker_touches_its_own_container_only():
    text = "\n".join(lines(spec_of()))
    assert "ExecStartPre=-/usr/bin/docker rm --force gb10-ring-engine\n" in text
    assert "ExecStop=-/usr/bin/docker stop -t 30 gb10-ring-engine\n" in text
    assert "ExecStopPost=-/usr/bin/docker rm --force gb10-ring-engine\n" in text
    assert "TimeoutStopSec=45" in text


def test_podman_removes_its_own_container_when_conmon_was_killed():
    text = "\n".join(lines(spec_of(RING3.with_renderer("podman"))))
    assert "ExecStopPost=-/usr/bin/podman rm --force --ignore --time 0 gb10-ring-engine\n" in text


def test_podman_gets_the_same_as_docker():
    spec, docker = spec_of(RING3.with_renderer("podman")), spec_of()
    found = joined(spec)
    container = found[found.index("[Container]") : found.index("[Service]")]
    environment = dict(
        line.removeprefix("Environment=").split("=", 1) for line in container if line.startswith("Environment=")
    )
    assert environment == dict(docker.env)
    (command,) = [shlex.split(line.removeprefix("Exec=")) for line in container if line.startswith("Exec=")]
    assert tuple(command) == docker.argv[1:]
    arguments = {line.removeprefix("PodmanArgs=") for line in container if line.startswith("PodmanArgs=")}
    wanted = {f"{flag}={value}" for flag, value in render_docker.limit_flags(docker.limits) if flag != "--shm-size"}
    assert wanted | {"--ipc=host", "--pull=never", "--stop-timeout=30", "--entrypoint=vllm"} == arguments
    assert f"Label=gb10.ring.hash={spec.hash}" in container


@pytest.mark.parametrize("module", [render_docker, render_podman])
def test_a_specification_without_a_container_is_refused(module):
    with pytest.raises(ValueError, match="renderer venv runs no container"):
        module.render(spec_of(GROUPS["lab"]))


def test_values_with_blanks_and_specifiers_survive():
    group = replace(GROUPS["lab"], overrides={"env": {"A": "1 2 %h", "B": '$X "q"'}, "options": {"c": "50 %"}})
    found = lines(spec_of(group))
    assert 'Environment="A=1 2 %%h"' in found
    assert 'Environment="B=$X \\"q\\""' in found
    assert any('--c "50 %%"' in line for line in found)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"model": "other config.json"}, False),
        ({"env": {"MAX_JOBS": "2"}}, False),
        ({"options": {"max-model-len": 65536}}, False),
        ({"limit_memlock": 65536}, False),
        ({"oom_score_adjust": 0}, False),
        ({"name": "other"}, False),
        ({"log_lines": []}, True),  # what is looked for is not what runs
    ],
)
def test_the_hash_follows_all_that_decides_what_runs(change, same):
    spec = spec_of()
    digest = change.pop("model", None)
    other = spec_of(replace(RING3, overrides={**RING3.overrides, **change}))
    if digest:
        other = render.with_hash(replace(other, model={**other.model, "config_sha256": digest}))
    assert (other.hash == spec.hash) is same


def test_the_hash_does_not_depend_on_itself():
    spec = spec_of()
    assert render.with_hash(spec) == spec
    assert render.with_hash(replace(spec, hash="00")) == spec


def test_stack_limit_and_cache_elsewhere():
    found = lines(spec_of(GROUPS["sglang-tp4-engram"]))
    assert "LimitSTACK=67108864" in found
    assert "  --ulimit stack=67108864 \\" in found
    assert "CacheDirectory=gb10-ring-engine" in found
    assert render_venv.PATH == render_docker.PATH  # one unit, whatever runs in it
