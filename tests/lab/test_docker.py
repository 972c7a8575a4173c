# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker on the lab: the image is pulled once, given to the others over the fabric, and run by the rendered unit.

Runs inside the controller namespace of a freshly booted lab of the layer `docker` (`make docker-test`). The tests build on each other.
"""

from __future__ import annotations

import json

import container_run as run
import pytest

from site_run import NODES, on, play

PORT = 5000
NAME = f"127.0.0.1:{PORT}/lab/engine"
CAPABILITIES = ["IPC_LOCK", "FOWNER"]
LAYOUT, LOG = f"{run.DATA}/layout", "/run/registry.log"


@pytest.fixture(scope="module")
def image() -> tuple[str, str]:
    """A published image: its name by digest, and its id. The first node can reach its registry, nobody else can."""
    if on("spark1", f"ls -d {LAYOUT} 2>/dev/null || true") == "":
        run.archive("docker")
        program = (run.CHECKOUT / "tests/lab/registry_stand_in.py").read_text(encoding="utf-8")
        run.write("spark1", f"{run.DATA}/registry.py", program)
        on("spark1", f"mkdir {LAYOUT} && tar -xf {run.ARCHIVE} -C {LAYOUT} && rm {run.ARCHIVE}")
        on("spark1", f"systemd-run -q --unit=registry python3 {run.DATA}/registry.py {LAYOUT} {PORT} {LOG}")
    digest = json.loads(on("spark1", f"cat {LAYOUT}/index.json"))["manifests"][0]["digest"]
    config = json.loads(on("spark1", f"cat {LAYOUT}/blobs/{digest.replace(':', '/')}"))["config"]
    return f"{NAME}@{digest}", config["digest"]


def words(image: tuple[str, str], **more: object) -> tuple[str, ...]:
    return run.settings("docker", {"image": image[0], "gpus": "all"}, **more)


def test_a_dry_run_tells_what_would_be_moved_and_moves_nothing(image):
    code, output = run.engine("--check", "--diff", *words(image))
    assert code == 0, output
    assert f"pulls {image[0]}" in output
    for giver in ("198.19.0.1", "198.19.4.1"):
        assert f"takes {image[0]} from spark1 at {giver}" in output, output
    assert [run.ids("docker", node) for node in NODES] == [[], [], []]


def test_a_transfer_that_breaks_leaves_nothing_and_the_next_run_finishes_it(image):
    run.faulty("docker", "cut")
    code, output = run.engine(*words(image), tags=False)
    assert code != 0 and "the stream ended before the image did" in output, output
    for fault in ("short", "flip"):
        on("spark1", f"echo {fault} >/run/image-fault")
        code, output = run.engine(*words(image))
        assert code != 0 and "no neighbour gave sha256:" in output, output
        for node, address in (("spark2", "198.19.0.1"), ("spark3", "198.19.4.1")):
            assert f"[{node}]: FAILED!" in output and f"{address}: /usr/bin/docker load --quiet: exit 1" in output
    assert [run.ids("docker", node) for node in NODES] == [[image[1]], [], []]
    assert [run.left("docker", node) for node in NODES[1:]] == ["", ""]
    assert "gb10-ring-image" not in run.left("docker", "spark1") and "7874" not in run.left("docker", "spark1")
    run.whole("docker")


def test_the_group_serves_from_the_image_that_was_pulled_once(image):
    code, output = run.engine(*words(image))
    assert code == 0, output
    assert [run.ids("docker", node) for node in NODES] == [[image[1]]] * 3
    for node in NODES:
        assert (
            on(node, f"docker image inspect -f '{{{{.RepoTags}}}}' {image[1]}")
            == f"[localhost/gb10-ring/engine:{image[1][7:19]}]"
        )
    asked = on("spark1", f"sort {LOG} | uniq -c").splitlines()
    blobs = [line.split() for line in asked if " blobs " in line]
    assert len(blobs) == 2 and all(count == "1" for count, *_digest in blobs), asked  # its configuration and its layer
    for node in NODES:
        assert on(
            node,
            "docker inspect -f '{{.Image}} {{.HostConfig.RestartPolicy.Name}} {{.HostConfig.Privileged}}' gb10-ring-engine",
        ) == (f"{image[1]} no false")
        assert "gb10-ring-image" not in run.left("docker", node) and "7874" not in run.left("docker", node)


def test_the_runtime_was_asked_for_what_the_specification_says(image):
    for node in NODES:
        spec = run.record(node)
        assert spec["container"]["image"] == image[1]
        asked = run.asked_of_runtime("docker", node)
        assert run.differences(spec, asked) == []
        assert "nvidia-container-runtime-hook" in str(asked["hooks"]["prestart"])


def test_the_all_reduce_is_run_in_the_image_that_serves(image, tmp_path):
    """The stand-in's image has no torch: what matters is who said so, and what the runtime was asked for."""
    overrides = {
        **run.ASKED,
        "image": image[0],
        "capabilities": CAPABILITIES,
        "gpus": "all",
        "env": {"NCCL_PROTO": "^LL128", "NCCL_DEBUG": "WARN"},
    }
    given = {
        "engine_renderer": "docker",
        "engine_overrides": overrides,
        "verify_roles": ["fabric"],
        "verify_report_path": str(tmp_path / "verify.json"),
        "fabric_verify_cabling": False,
        "fabric_allreduce": True,
        "fabric_allreduce_command": [],  # as everywhere but on the lab
        "fabric_allreduce_timeout": 10,
    }
    _code, output = play("-e", json.dumps(given), playbook="verify.yml")
    checks = json.loads((tmp_path / "verify.json").read_text(encoding="utf-8"))["checks"]
    told = {check["node"]: check["found"] for check in checks if check["id"] == "fabric.allreduce"}
    assert all("cannot import torch" in told[node] for node in NODES), output
    for node in NODES:
        newest = on(node, "ls -t /var/lib/gb10-lab/oci/*.json | head -1")
        asked = json.loads(on(node, f"cat {newest}"))
        argv, limits = asked["process"]["args"], {row["type"]: row["soft"] for row in asked["process"]["rlimits"]}
        assert argv[0] == "sh" and argv[3] == "allreduce"
        assert {"NCCL_PROTO=^LL128", "NCCL_DEBUG=INFO", "NCCL_NET=IB", f"RANK={NODES.index(node)}"} <= set(argv)
        assert limits["RLIMIT_MEMLOCK"] == run.UNLIMITED
        assert set(asked["process"]["capabilities"]["bounding"]) == {"CAP_" + one for one in CAPABILITIES}
        assert not {row["type"] for row in asked["linux"]["namespaces"]} & {"network", "ipc"}
        assert "NVIDIA_VISIBLE_DEVICES=all" in asked["process"]["env"]
        assert "/dev/infiniband/uverbs0" in {row["path"] for row in asked["linux"]["devices"]}
        assert on(node, "docker ps -aq --filter status=exited") == ""


def test_a_second_run_changes_nothing(image):
    code, output = run.engine(*words(image))
    assert code == 0 and run.changed(output) == 0, output


def test_a_rank_whose_docker_command_is_killed_ends_the_group_and_leaves_no_container(image):
    run.killed("docker", "spark1")


def test_a_node_without_the_image_is_named_and_gets_it_within_the_budget(image):
    on("spark3", f"systemctl stop gb10-ring-engine; docker image rm {image[1]} || true")
    code, output = play(*words(image, verify_roles=["engine"]), playbook="verify.yml")
    assert code != 0
    assert (
        f"spark3: engine.image error: found no image {image[1]}, expected {image[1]} on every node. Cure: " in output
    ), output
    assert "spark1: engine.image" not in output and "spark2: engine.image" not in output
    code, output = run.engine(*words(image, engine_image_ceiling_percent=1))
    assert code != 0 and "spark3: engine.image_budget error: found" in output and "free " in output, output
    assert run.ids("docker", "spark3") == []
    code, output = run.engine(*words(image))
    assert code == 0 and run.ids("docker", "spark3") == [image[1]], output


def test_uninstalling_leaves_the_image_and_nothing_else_of_ours(image):
    code, output = play("--tags", "engine", *words(image), playbook="uninstall.yml")
    assert code == 0, output
    for node in NODES:
        assert on(node, "docker ps -aq; ls /etc/systemd/system/gb10-ring-engine.service 2>/dev/null; true") == ""
        assert run.ids("docker", node) == [image[1]]
