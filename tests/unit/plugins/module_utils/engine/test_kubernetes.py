# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import jsonschema
import kubernetes_validate
import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import tp_config
from ansible_collections.gb10.ring.plugins.module_utils.engine import kubernetes
from ansible_collections.gb10.ring.plugins.module_utils.engine.kubernetes_support import PAD
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import (
    CLUSTERS,
    CONFIG,
    ENGINE,
    REVISION,
    cluster_manifests,
)

SCHEMA = yaml.safe_load((ENGINE / "llmkube-v1alpha1.yml").read_text(encoding="utf-8"))
CUSTOM = "inference.llmkube.dev/"
NAMES = sorted(CLUSTERS)


def resources(name):
    return [resource for documents in cluster_manifests(name).values() for resource in documents]


def check_custom(resource):
    schema = {**SCHEMA[resource["kind"]], "definitions": SCHEMA["definitions"]}
    jsonschema.validate(json.loads(json.dumps(resource)), schema, format_checker=jsonschema.FormatChecker())


def pod_with(spec):
    """The volumes of an InferenceService in a pod, which the core schema knows."""
    mounts = {"name": "x", "image": "x", "volumeMounts": spec["extraVolumeMounts"], "env": spec["env"]}
    pod = {"containers": [mounts], "volumes": spec["extraVolumes"], "tolerations": spec.get("tolerations", [])}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}


@pytest.mark.parametrize("name", NAMES)
def test_core_resources_validate_strictly(name):
    core = [json.loads(json.dumps(found)) for found in resources(name) if not found["apiVersion"].startswith(CUSTOM)]
    assert {found["kind"] for found in core} >= {"PersistentVolume", "PersistentVolumeClaim", "Job"}
    for found in core:
        assert kubernetes_validate.validate(found, "1.33", strict=True) == "1.33"


@pytest.mark.parametrize("name", NAMES)
def test_custom_resources_have_published_fields_only(name):
    custom = [found for found in resources(name) if found["apiVersion"].startswith(CUSTOM)]
    assert [found["kind"] for found in custom] == ["Model", "InferenceService"]
    for found in custom:
        check_custom(found)
    kubernetes_validate.validate(json.loads(json.dumps(pod_with(custom[1]["spec"]))), "1.33", strict=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "multiNode", "gidIndex"), 3),
        (("spec", "vllmConfig", "maxModelLen"), "524288"),
        (("spec", "env", 0, "value"), 1),
        (("spec", "multiNode", "members", 0, "fabric", "address"), "spark1"),
        (("metadata", "name"), "Dsv41"),
    ],
)
def test_the_field_check_can_fail(path, value):
    broken = deepcopy(cluster_manifests(NAMES[1])["40-inferenceservice.yaml"][0])
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check_custom(broken)


@pytest.mark.parametrize("name", NAMES)
def test_volumes_are_bound_to_their_nodes_and_claims(name):
    _group, cluster = CLUSTERS[name]
    storage = cluster_manifests(name)["10-storage.yaml"]
    volumes = [found for found in storage if found["kind"] == "PersistentVolume"]
    claims = [found for found in storage if found["kind"] == "PersistentVolumeClaim"]
    terms = [volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] for volume in volumes]
    assert tuple(term[0]["matchExpressions"][0]["values"][0] for term in terms) == cluster.nodes
    assert tuple(volume["spec"]["claimRef"]["name"] for volume in volumes) == cluster.claims
    assert [claim["spec"]["volumeName"] for claim in claims] == list(cluster.claims)
    assert {found["spec"]["storageClassName"] for found in (*volumes, *claims)} == {""}
    assert {volume["spec"]["persistentVolumeReclaimPolicy"] for volume in volumes} == {"Retain"}


@pytest.mark.parametrize("name", NAMES)
def test_jobs_run_once_on_each_node_with_the_pinned_image(name):
    _group, cluster = CLUSTERS[name]
    jobs = cluster_manifests(name)["30-jobs.yaml"]
    assert {job["kind"] for job in jobs} == {"Job"}  # whoever applies the file waits for every resource to be complete
    drops = [job["spec"]["template"]["spec"] for job in jobs if "drop-page-cache" in job["metadata"]["name"]]
    assert tuple(pod["nodeName"] for pod in drops) == cluster.nodes
    for job in jobs:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert "@sha256:" in container["image"]
        assert job["spec"]["backoffLimit"] == 0
        assert len(job["metadata"]["name"]) <= 63


def test_a_changed_job_is_another_one():
    """The template of a Job is immutable: under its old name a new image would be refused."""
    group, cluster = CLUSTERS["vllm-tp2-pair-vision"]

    def names(**more):
        profile, specs = replace(group, overrides={**group.overrides, **more}).specs()
        return [job["metadata"]["name"] for job in kubernetes.manifests(profile, specs, cluster, "")["30-jobs.yaml"]]

    assert names() == names(port=8081)
    assert not set(names()) & set(names(image="x@sha256:" + "2" * 64))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_group_needs_is_found_again_by_its_labels(name):
    (service,) = cluster_manifests(name)["40-inferenceservice.yaml"]
    for found in resources(name):
        if not found["apiVersion"].startswith(CUSTOM):
            assert found["metadata"]["labels"] == {
                "app.kubernetes.io/managed-by": "gb10.ring",
                "app.kubernetes.io/instance": f"default.{service['metadata']['name']}",
            }


def test_without_a_source_the_pods_read_what_is_staged_and_nothing_is_padded():
    manifests = cluster_manifests("vllm-tp2-pair-vision")
    assert manifests["20-model.yaml"][0]["spec"]["source"] == f"pvc://dsv4-vision-dgx3/revisions/{REVISION}"
    assert "modelCache" not in manifests["40-inferenceservice.yaml"][0]["spec"]
    assert "ConfigMap" not in {found["kind"] for found in manifests["10-storage.yaml"]}
    assert len(manifests["30-jobs.yaml"]) == 2


def test_no_job_drops_a_page_cache_that_the_engine_uses_as_its_weights():
    group, cluster = CLUSTERS["vllm-tp2-pair-vision"]
    profile, specs = replace(group, overrides={**group.overrides, "page_cache": "keep"}).specs()
    assert kubernetes.manifests(profile, specs, cluster, "")["30-jobs.yaml"] == []


@pytest.mark.parametrize(("files", "named"), [((), None), (("config.json",), ["config.json"])])
def test_a_source_whose_files_are_not_known_names_none(files, named):
    group, cluster = CLUSTERS["vllm-tp3-ring-exl3"]
    profile, _specs = group.specs()
    model = kubernetes.model(profile, replace(cluster, files=files), REVISION)
    check_custom(model)
    assert model["spec"].get("files") == named


def test_the_operators_key_of_a_source():
    source = "s3://models/bot-lab-21/DeepSeek-V4.1-Flash-EXL3-3.5bpw-Pollard"
    assert kubernetes.engine_path(source, "r") == "/models/22fa141368a3262a"  # as the published sample has it
    assert kubernetes.engine_path("", "r") == "/model-source/revisions/r"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda specs, cluster: (specs, replace(cluster, nodes=("a",))), "3 ranks, 1 node names and 3 claims"),
        (
            lambda specs, cluster: ([replace(specs[0], env={**specs[0].env, "X": "0"}), *specs[1:]], cluster),
            "the ranks differ in X: 0, None, None; an InferenceService has one environment",
        ),
        (
            lambda specs, cluster: (
                [replace(specs[0], options={**specs[0].options, "max-num-seqs": 9}), *specs[1:]],
                cluster,
            ),
            "the ranks differ in the options max-num-seqs",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(change, says):
    group, cluster = CLUSTERS["vllm-tp3-ring-exl3"]
    profile, specs = group.specs()
    specs, cluster = change(specs, cluster)
    with pytest.raises(kubernetes.ManifestError) as error:
        kubernetes.manifests(profile, specs, cluster, "")
    assert says in str(error.value)


def test_a_custom_kv_dtype_a_rendezvous_port_and_mounts_have_their_fields():
    group, cluster = CLUSTERS["vllm-tp2-pair-vision"]
    mount = {"source": "/opt/patch.cu", "target": "/usr/lib/patch.cu"}
    more = {"options": {"kv-cache-dtype": "fp8_ds_mla"}, "rendezvous_port": 29501, "mounts": [mount]}
    profile, specs = replace(group, overrides={**group.overrides, **more}).specs()
    spec = kubernetes.inference_service(profile, specs, cluster)["spec"]
    assert spec["vllmConfig"]["kvCacheCustomDtype"] == "fp8_ds_mla"
    assert spec["multiNode"]["rendezvousPort"] == 29501
    assert spec["extraVolumes"][2]["hostPath"] == {"path": "/opt/patch.cu"}
    assert spec["extraVolumeMounts"][2] == {"name": "mount-0", "mountPath": "/usr/lib/patch.cu", "readOnly": True}


@pytest.fixture
def pad(tmp_path):
    """The padding Job's program, as its container has it, on a directory of the machine."""
    shutil.copy(tp_config.__file__, tmp_path / "tp_config.py")
    program = tmp_path / "pad.py"
    program.write_text(PAD.replace('"/program"', repr(str(tmp_path))), encoding="utf-8")

    def run(ranks):
        argv = [sys.executable, str(program), str(tmp_path), str(ranks)]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_the_padding_job_edits_once_and_keeps_the_original(pad, tmp_path):
    missing = pad(3)
    assert missing.returncode == 1
    assert "wait until the Model is Ready" in missing.stderr
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "padded for 3 ranks" in pad(3).stdout
    assert json.loads((tmp_path / "config.json").read_text()) == tp_config.padded(CONFIG, 3)
    assert json.loads((tmp_path / "config.json.orig-hf").read_text()) == CONFIG
    assert "is right for 3 ranks" in pad(3).stdout
