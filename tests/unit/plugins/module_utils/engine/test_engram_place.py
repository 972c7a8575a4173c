# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the engine is told to read Engram rows, and whether that is there where it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.engram import ranges
from ansible_collections.gb10.ring.plugins.module_utils.engine import kubernetes, render
from ansible_collections.gb10.ring.plugins.module_utils.engine.options import merged
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import (
    CLUSTERS,
    CONFIG,
    GROUPS,
    REVISION,
    ROOT,
)

VLLM, SGLANG = "vllm-tp3-ring-exl3", "sglang-tp4-engram"
HOST = f"{ROOT}/revisions/{REVISION}"


def specs(name, renderer="docker", **engram):
    over = {"renderer": renderer, "engram": engram, "executable": "/opt/bin/engine" if renderer == "venv" else "engine"}
    group = GROUPS[name]
    return replace(group, overrides=merged(group.overrides, over)).specs()[1]


def text(spec):
    return render.render(spec)[render.unit_path(spec)]


@pytest.mark.parametrize(
    ("renderer", "engram", "told", "mount"),
    [
        ("docker", {"placement": "full"}, None, ""),
        ("docker", {"placement": "shard"}, f"/models/revisions/{REVISION}", ""),
        ("docker", {"placement": "directory"}, "/models/engram", ""),
        ("docker", {"placement": "directory", "directory": f"{ROOT}/rows/a/"}, "/models/rows/a", ""),
        ("docker", {"placement": "directory", "directory": "/srv/rows"}, "/engram-local", "/srv/rows"),
        # A name that begins as the checkpoint's does is not below it.
        ("docker", {"placement": "directory", "directory": f"{ROOT}-rows"}, "/engram-local", f"{ROOT}-rows"),
        ("podman", {"placement": "directory"}, "/models/engram", ""),
        ("podman", {"placement": "directory", "directory": "/srv/rows"}, "/engram-local", "/srv/rows"),
        ("venv", {"placement": "shard"}, HOST, ""),
        ("venv", {"placement": "directory"}, f"{ROOT}/engram", ""),
        ("venv", {"placement": "directory", "directory": "/srv/rows"}, "/srv/rows", ""),
    ],
)
def test_vllm_is_told_where_its_rows_are_as_it_sees_them(renderer, engram, told, mount):
    for spec in specs(VLLM, renderer, **engram):
        assert spec.env.get("DSV41_ENGRAM_DIR") == told
        assert spec.env["DSV41_ENGRAM_DISK"] == "1"
        unit = text(spec)
        bind = f"type=bind,source={mount},target=/engram-local,readonly"
        assert (bind in unit) is bool(mount) and unit.count("target=/engram-local") == bool(mount)
        assert told is None or f"DSV41_ENGRAM_DIR={told}" in unit
        directory = engram["placement"] == "directory"
        assert (f"RequiresMountsFor={spec.model.get('engram')}\n" in unit) is directory


def test_a_container_that_sees_the_checkpoint_at_its_own_path_gets_the_mount_too():
    group = GROUPS[VLLM]
    over = {"model_mount": ROOT, "engram": {"placement": "directory", "directory": "/srv/rows"}}
    (spec, *_others) = replace(group, overrides=merged(group.overrides, over)).specs()[1]
    assert spec.env["DSV41_ENGRAM_DIR"] == "/engram-local"
    assert [one.source for one in spec.container.mounts if one.target == "/engram-local"] == ["/srv/rows"]


@pytest.mark.parametrize(
    ("engram", "told", "mount"),
    [
        ({"placement": "full"}, f"/models/repo/revisions/{REVISION}", ""),
        ({"placement": "shard"}, f"/models/repo/revisions/{REVISION}", ""),
        ({"placement": "directory"}, "/models/repo/engram", ""),
        ({"placement": "directory", "directory": "/srv/rows"}, "/engram-local", "/srv/rows"),
    ],
)
@pytest.mark.parametrize("rule", ["sglang", "vllm"])
def test_sglang_is_told_where_and_which_rows(engram, told, mount, rule):
    """Its overlay takes any split that all ranks agree on, so a profile may name the other rule."""
    for spec in specs(SGLANG, rule=rule, **engram):
        wanted = ranges(CONFIG, 4, rule)[spec.rank]
        assert spec.env["SPARK_ENGRAM_DIR"] == told
        assert spec.env["SPARK_ENGRAM_ROWS"] == ",".join(f"{key}:{low}:{high}" for key, (low, high) in wanted.items())
        assert [one.source for one in spec.container.mounts if one.target == "/engram-local"] == [mount] * bool(mount)


@pytest.mark.parametrize(
    ("source", "directory", "told"),
    [
        ("", "", "/model-source/engram"),
        ("s3://models/x", "", "/models/engram"),
        ("", "/srv/rows", "/engram-local"),
        ("s3://models/x", "/srv/rows", "/engram-local"),
    ],
)
def test_a_pod_sees_the_directory(source, directory, told):
    group, cluster = CLUSTERS[VLLM]
    over = {"engram": {"placement": "directory", "directory": directory}}
    group = replace(group, source=source, overrides=merged(group.overrides, over))
    profile, ranks = group.specs()
    found = kubernetes.manifests(profile, ranks, replace(cluster, source=source), "")["40-inferenceservice.yaml"][0]
    assert {"name": "DSV41_ENGRAM_DIR", "value": told} in found["spec"]["env"]
    volumes = [one for one in found["spec"]["extraVolumes"] if one["name"] == "engram"]
    mounts = [one for one in found["spec"]["extraVolumeMounts"] if one["name"] == "engram"]
    path = {"path": directory, "type": "Directory"}
    assert volumes == [{"name": "engram", "hostPath": path}] * bool(directory)
    assert mounts == [{"name": "engram", "mountPath": "/engram-local", "readOnly": True}] * bool(directory)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        (VLLM, {"engram": {"rule": "sglang"}}, "vLLM splits the tables by vllm alone"),
        (VLLM, {"env": {"DSV41_ENGRAM_DIR": "/srv/rows"}}, "engram.placement full gives none"),
        (VLLM, {"engram": {"placement": "shard"}, "env": {"DSV41_ENGRAM_DIR": "/x"}}, "env has DSV41_ENGRAM_DIR=/x"),
        (VLLM, {"engram": {"placement": "shard"}, "env": {"DSV41_ENGRAM_DISK": 0}}, "gives 1: the engine would read"),
        (VLLM, {"engram": {"placement": "shard"}, "env": {"DSV41_ENGRAM_DISK": None}}, "env has DSV41_ENGRAM_DISK="),
        (VLLM, {"engram": {"placement": "directory"}, "env": {"DSV41_ENGRAM_DIR": "{model}"}}, "gives {engram}"),
        (SGLANG, {"engram": {"placement": "directory"}, "env": {"SPARK_ENGRAM_DIR": "{model}"}}, "gives {engram}"),
        (SGLANG, {"env": {"SPARK_ENGRAM_ROWS": "1:0:5"}}, "env has SPARK_ENGRAM_ROWS=1:0:5"),
        (VLLM, {"engram": {"placement": "disk"}}, "expected one of directory, shard, full"),
        (VLLM, {"engram": {"directory": "rows"}}, "an absolute path on the nodes"),
        (VLLM, {"engram": {"ranks": 3}}, "unknown key ranks"),
    ],
)
def test_what_reads_rows_elsewhere_is_refused(name, change, says):
    group = GROUPS[name]
    with pytest.raises(ProfileError) as error:
        parse(merged(group.read(), change), len(group.topology["nodes"]))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (VLLM, {"engram": {"placement": "shard"}, "env": {"DSV41_ENGRAM_DIR": "{model}"}}),
        (VLLM, {"engram": {"placement": "directory"}, "env": {"DSV41_ENGRAM_DIR": "{engram}"}}),
        (SGLANG, {"env": {"SPARK_ENGRAM_DIR": "{model}", "SPARK_ENGRAM_ROWS": "{engram_rows}"}}),
        # A profile that says nothing of Engram rows may say all of it itself.
        (VLLM, {"engram": None, "env": {"DSV41_ENGRAM_DIR": "/srv/rows"}}),
    ],
)
def test_what_says_the_same_is_taken(name, change):
    given = {key: value for key, value in merged(GROUPS[name].read(), change).items() if value is not None}
    assert parse(given, len(GROUPS[name].topology["nodes"])).name == name


def test_a_profile_that_says_nothing_sets_nothing():
    profile = parse({key: value for key, value in GROUPS[SGLANG].read().items() if key != "engram"}, 4)
    assert profile.engram == {}
    assert parse(profile.to_dict(), 4) == profile
