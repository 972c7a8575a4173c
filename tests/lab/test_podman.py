# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman on the lab: the image comes from an archive, is given to the others over the fabric, and run by the unit that Podman makes.

Runs inside the controller namespace of a freshly booted lab of the layer `docker` (`make podman-test`). The tests build on each other.
"""

from __future__ import annotations

import container_run as run
import pytest

from site_run import NODES, on, play

UNIT = "gb10-ring-engine.service"
SOURCE = "/etc/containers/systemd/gb10-ring-engine.container"


@pytest.fixture(scope="module")
def image() -> str:
    """Id of an image that lies in an archive on the first node."""
    return run.archived() or run.archive("podman")


def words(image: str, **more: object) -> tuple[str, ...]:
    return run.settings("podman", {"image_id": image, "gpus": "all"}, engine_image_archive=run.ARCHIVE, **more)


def test_an_archive_of_another_image_is_refused(image):
    other = f"sha256:{'0' * 64}"
    code, output = run.engine(*words(other))
    assert code != 0 and f"{run.ARCHIVE} holds {image}, expected {other}. Cure: set image_id" in output, output


def test_a_transfer_that_breaks_leaves_nothing(image):
    run.faulty("podman", "cut")
    code, output = run.engine(*words(image), tags=False)
    assert code != 0 and "the stream ended before the image did" in output, output
    on("spark1", "echo flip >/run/image-fault")
    code, output = run.engine(*words(image))
    assert code != 0 and "no neighbour gave sha256:" in output, output
    assert [run.ids("podman", node) for node in NODES] == [[image], [], []]
    assert [run.left("podman", node) for node in NODES[1:]] == ["", ""]
    run.whole("podman")


def test_the_quadlet_serves_from_the_image_of_the_archive(image):
    code, output = run.engine(*words(image))
    assert code == 0, output
    for node in NODES:
        assert run.ids("podman", node) == [image]
        assert on(node, f"systemctl show -p SourcePath,ActiveState,UnitFileState {UNIT}").splitlines() == [
            "ActiveState=active",
            f"SourcePath={SOURCE}",
            "UnitFileState=generated",
        ]
        assert on(node, "podman inspect -f '{{.Image}} {{.HostConfig.Privileged}}' gb10-ring-engine") == (
            f"{image.removeprefix('sha256:')} false"
        )


def test_the_runtime_was_asked_for_what_the_specification_says(image):
    for node in NODES:
        spec = run.record(node)
        assert spec["container"]["image"] == image
        asked = run.asked_of_runtime("podman", node)
        assert run.differences(spec, asked) == []
        assert asked["linux"]["resources"]["memory"]["swap"] == spec["limits"]["memory_gib"] << 30


def test_a_second_run_changes_nothing_and_needs_no_archive(image):
    on("spark1", f"rm {run.ARCHIVE}")
    code, output = run.engine(*words(image))
    assert code == 0 and run.changed(output) == 0, output


def test_a_rank_whose_conmon_is_killed_ends_the_group_and_leaves_no_container(image):
    run.killed("podman", "spark3")


def test_a_node_without_the_image_is_named_and_gets_it(image):
    on("spark2", f"systemctl stop {UNIT}; podman image rm {image} || true")
    code, output = play(*words(image, verify_roles=["engine"]), playbook="verify.yml")
    assert code != 0
    assert f"spark2: engine.image error: found no image {image}, expected {image} on every node. Cure: " in output, (
        output
    )
    code, output = run.engine(*words(image))
    assert code == 0 and run.ids("podman", "spark2") == [image], output
