# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a group of LLMKube needs beside its own resources: volumes on each node, and Jobs that ready each node before a start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from .profile import Profile

_PROGRAM = "/program"

# Runs in the Job, with tp_config.py of this collection beside it.
PAD = """\
import json, os, sys
sys.path.insert(0, "/program")
from tp_config import padded

path, ranks = sys.argv[1] + "/config.json", int(sys.argv[2])
try:
    with open(path, encoding="utf-8") as file:
        text = file.read()
except FileNotFoundError:
    sys.exit(path + " is not there yet: wait until the Model is Ready, then apply this Job again")
config = json.loads(text)
wanted = padded(config, ranks)
if wanted == config:
    print("config.json is right for", ranks, "ranks")
    sys.exit()
if not os.path.exists(path + ".orig-hf"):
    with open(path + ".orig-hf", "w", encoding="utf-8") as file:
        file.write(text)
with open(path + ".new", "w", encoding="utf-8") as file:
    json.dump(wanted, file, indent=2)
    file.flush()
    os.fsync(file.fileno())
os.replace(path + ".new", path)
print("config.json is padded for", ranks, "ranks; the original is config.json.orig-hf")
"""
_DROP = "sync; grep -E '^(MemFree|Cached)' /proc/meminfo; echo 3 > /proc/sys/vm/drop_caches; grep -E '^(MemFree|Cached)' /proc/meminfo"


def labels(profile: Profile, namespace: str) -> dict[str, str]:
    """By which the role finds again what it has put into the cluster for this group. Volumes are in no namespace."""
    instance = f"{namespace}.{profile.kubernetes['service']}"
    return {"app.kubernetes.io/managed-by": "gb10.ring", "app.kubernetes.io/instance": instance}


def storage(
    profile: Profile, namespace: str, members: Sequence[tuple[str, str]], root: str, capacity: str
) -> list[dict[str, Any]]:
    """A volume and a claim for each (node, claim). They name each other: members are placed by node name, so a class that waits

    for a consumer would never bind.
    """
    return [
        resource
        for member in members
        for resource in (
            _volume(profile, namespace, member, root, capacity),
            _claim(profile, namespace, member[1], capacity),
        )
    ]


def _volume(profile: Profile, namespace: str, member: tuple[str, str], root: str, capacity: str) -> dict[str, Any]:
    node, claim = member
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": claim, "labels": labels(profile, namespace)},
        "spec": {
            "capacity": {"storage": capacity},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim},
            "local": {"path": root},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _claim(profile: Profile, namespace: str, claim: str, capacity: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "namespace": namespace, "labels": labels(profile, namespace)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": claim,
            "resources": {"requests": {"storage": capacity}},
        },
    }


def page_cache_job(profile: Profile, namespace: str, node: str) -> dict[str, Any]:
    """Files that were just staged fill the page cache, and the engine counts that as memory in use and refuses to start."""
    container = {
        "name": "drop",
        "image": profile.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _DROP],
        "securityContext": {"privileged": True, "runAsUser": 0},
    }
    return _job(profile, namespace, node, "drop-page-cache", {"containers": [container]})


def config_program(profile: Profile, namespace: str, program: str) -> dict[str, Any]:
    """What the Jobs of config_jobs() run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _program_name(profile), "namespace": namespace, "labels": labels(profile, namespace)},
        "data": {"pad.py": PAD, "tp_config.py": program},
    }


def _program_name(profile: Profile) -> str:
    return f"{profile.kubernetes['service']}-config"


def config_jobs(
    profile: Profile, namespace: str, members: Sequence[tuple[str, str]], path: str
) -> list[dict[str, Any]]:
    """Pads heads and groups in the config.json that the operator staged, on each node, for a number of ranks that does not divide them."""
    root, _slash, _key = path.rpartition("/")
    container = {
        "name": "pad",
        "image": profile.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{_PROGRAM}/pad.py", path, str(profile.tensor_parallel)],
        "securityContext": {"runAsUser": 0, "allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "program", "mountPath": _PROGRAM}, {"name": "models", "mountPath": root}],
    }
    jobs = []
    for node, claim in members:
        volumes = [
            {"name": "program", "configMap": {"name": _program_name(profile)}},
            {"name": "models", "persistentVolumeClaim": {"claimName": claim}},
        ]
        jobs.append(_job(profile, namespace, node, "config", {"containers": [container], "volumes": volumes}))
    return jobs


def _job(profile: Profile, namespace: str, node: str, what: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A Job cannot be changed once it is there, so its name follows from what it does: a changed one is another."""
    tolerations = [dict(item) for item in profile.kubernetes.get("tolerations", ())]
    spec = {"restartPolicy": "Never", "nodeName": node, **({"tolerations": tolerations} if tolerations else {}), **pod}
    job = {"backoffLimit": 0, "template": {"metadata": {"labels": labels(profile, namespace)}, "spec": spec}}
    identity = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:8]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{profile.kubernetes['service']}-{what}-{node}-{identity}",
            "namespace": namespace,
            "labels": labels(profile, namespace),
        },
        "spec": job,
    }
