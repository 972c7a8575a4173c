# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role against a double of the Kubernetes API (tests/unit/fixtures/kube_api.py), through kubernetes.core: what reaches a cluster, in which order.

Run by `make cluster-test`, which installs kubernetes.core beside the project.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import RING3
from ansible_collections.gb10.ring.tests.unit.fixtures.kube_api import Cluster, serve

CHECKOUT = Path(__file__).resolve().parents[2]
CORE = Path(os.environ.get("KUBERNETES_CORE", CHECKOUT / ".cache" / "kubernetes"))
SERVICE, MODEL = "dsv41-exl3-ring", "dsv41-flash-exl3"
HOSTS = ("ahazidgx1", "ahazidgx2", "ahazidgx3")
PLAYBOOK = [
    {
        "hosts": "ring",
        "gather_facts": False,
        "tasks": [
            {
                "name": "Run the role",
                "ansible.builtin.include_role": {"name": "gb10.ring.engine", "tasks_from": "{{ part }}"},
            }
        ],
    }
]


@pytest.fixture
def cluster():
    found = Cluster()
    server = serve(found)
    found.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def play(cluster, tmp_path):
    """Run the role; its exit status and output. The nodes are this machine, whose fabric is an empty directory: it is only looked at."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "double",
        "contexts": [{"name": "double", "context": {"cluster": "double", "user": "double"}}],
        "clusters": [{"name": "double", "cluster": {"server": cluster.address}}],
        "users": [{"name": "double", "user": {"token": "none"}}],
    }
    for name, content in {
        "kubeconfig": kubeconfig,
        "ring.yml": {"plugin": "gb10.ring.topology", **RING3},
        "play.yml": PLAYBOOK,
    }.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    (tmp_path / "tmp").mkdir()
    base = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "engine_profile": "vllm-tp3-ring-exl3",
        "engine_renderer": "kubernetes",
        "engine_model_root": "/srv/models/dsv41",
        "engine_revision": "r1",
        "engine_kubeconfig": str(tmp_path / "kubeconfig"),
        "engine_manifest_dir": str(tmp_path / "manifests"),
        "engine_kubernetes_stop_timeout_s": 5,
        "engine_kubernetes_job_timeout_s": 5,
        "fabric_sysfs_root": str(tmp_path / "sys"),
        "part": "main",
    }
    env = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CORE),
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "PYTHONPATH": str(CORE / "python"),
        "TMPDIR": str(tmp_path / "tmp"),  # the client keeps there what an API said of itself, by its address
    }

    def run(*words, **variables):
        argv = ["ansible-playbook", "-i", str(tmp_path / "ring.yml"), str(tmp_path / "play.yml"), *words]
        argv += ["-e", json.dumps({**base, **variables})]
        done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=300, check=False, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    return run


def taken(cluster):
    """What has been changed since the last call, in order, without repetitions of a kind."""
    found, cluster.writes = cluster.writes, []
    rows = [(verb, kind) for verb, kind, _name in found]
    return [row for number, row in enumerate(rows) if number == 0 or rows[number - 1] != row]


def test_a_group_is_applied_in_order_once_and_what_changes_is_replaced(cluster, play):
    code, said = play("--check")
    assert code == 0, said
    assert cluster.writes == []
    code, said = play()
    assert code == 0, said
    assert [row for row in taken(cluster) if "Volume" not in row[1]] == [
        ("create", "Model"),
        ("create", "Job"),
        ("create", "InferenceService"),
    ]
    assert cluster.names("PersistentVolume") == cluster.names("PersistentVolumeClaim")
    assert len(cluster.names("PersistentVolume")) == 3
    jobs = cluster.names("Job")
    assert [name.rpartition("-")[0] for name in jobs] == [f"{SERVICE}-drop-page-cache-{host}" for host in HOSTS]
    assert cluster.get("InferenceService", SERVICE)["spec"]["multiNode"]["members"][2]["node"] == HOSTS[2]
    assert cluster.names("Pod") == [f"{SERVICE}-mn-{rank}" for rank in range(3)]

    code, said = play()
    assert code == 0, said
    assert taken(cluster) == []
    assert "changed=0" in said and "changed=1" not in said

    image = f"ghcr.io/defilantech/llmkube-vllm-cuda-gb10-dsv41-exl3@sha256:{'2' * 64}"
    code, said = play(engine_overrides={"image": image, "env": {"NCCL_DEBUG_SUBSYS": None}})
    assert code == 0, said
    assert taken(cluster) == [("delete", "Job"), ("create", "Job"), ("patch", "InferenceService")]
    assert not set(jobs) & set(cluster.names("Job"))
    assert len(cluster.names("Job")) == 3
    service = cluster.get("InferenceService", SERVICE)["spec"]
    assert service["image"] == image
    assert "NCCL_DEBUG_SUBSYS" not in [one["name"] for one in service["env"]]


def test_a_group_is_stopped_started_restarted_and_removed(cluster, play):
    assert play()[0] == 0
    taken(cluster)
    code, said = play(engine_state="stopped")
    assert code == 0, said
    assert taken(cluster) == [("patch", "InferenceService"), ("delete", "Job")]
    assert cluster.get("InferenceService", SERVICE)["spec"]["replicas"] == 0
    assert cluster.names("Pod") == cluster.names("Job") == []
    code, said = play(engine_state="stopped")
    assert code == 0 and taken(cluster) == [], said

    started = [("create", "Job"), ("patch", "InferenceService")]
    code, said = play()
    assert code == 0 and taken(cluster) == started, said
    assert len(cluster.names("Pod")) == 3
    code, said = play(engine_state="restarted")
    assert code == 0, said
    assert taken(cluster) == [("patch", "InferenceService"), ("delete", "Job"), *started]
    assert len(cluster.names("Pod")) == 3

    other = {"app.kubernetes.io/managed-by": "gb10.ring", "app.kubernetes.io/instance": "default.other"}
    about = {"name": "other", "labels": other}
    cluster.objects["persistentvolumes", "", "other"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": about,
    }
    code, said = play(part="cluster_absent")
    assert code == 0, said
    kinds = ("InferenceService", "Model", "Job", "PersistentVolumeClaim", "PersistentVolume")
    assert taken(cluster) == [("delete", kind) for kind in kinds]
    assert [key[2] for key in cluster.objects] == ["other"]
    code, said = play(part="cluster_absent")
    assert code == 0 and taken(cluster) == [], said


def test_removing_the_engine_takes_the_group_along(cluster, play):
    """A dry run, which this machine stands for the nodes of: what comes after the cluster may fail here, and changes nothing."""
    assert play()[0] == 0
    taken(cluster)
    _code, said = play("--check", engine_state="absent")
    removed, _task, rest = said.partition("Absent | Remove what the group needed")
    assert "Absent | Remove the group" in removed
    assert rest.count("changed: [ahazidgx1 -> localhost]") >= 3, said
    _code, said = play("--check", part="uninstall", engine_kubeconfig="")
    assert "what the group has in the cluster stays" in said
    assert "Uninstall | Remove the watchdog" in said
    assert cluster.writes == []


def test_members_that_do_not_go_are_named(cluster, play):
    assert play()[0] == 0
    cluster.stuck = True
    code, said = play(engine_state="stopped")
    assert code != 0
    assert (
        f"after 5 s the group {SERVICE} still has members: {SERVICE}-mn-0, {SERVICE}-mn-1, {SERVICE}-mn-2."
        in " ".join(said.split())
    )


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("stopped", f"kubectl -n default patch inferenceservice {SERVICE} --type merge"),
        ("restarted", f"kubectl -n default delete inferenceservice {SERVICE} &&"),
        ("absent", f"kubectl -n default delete inferenceservice/{SERVICE} model/{MODEL} &&"),
    ],
)
def test_without_a_kubeconfig_only_a_start_is_taken(cluster, play, state, command):
    code, said = play(engine_state=state, engine_kubeconfig="")
    assert code != 0
    said = " ".join(said.split())
    assert f"engine_state is {state} and engine_kubeconfig is empty" in said
    assert command in said.replace("\\n", "")
    assert "Uninstall |" not in said
    assert cluster.writes == []
