# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import fanout
from ansible_collections.gb10.ring.plugins.module_utils.engine import image

ID, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
NAME = f"registry.example/engine@sha256:{'c' * 64}"
GB = 1_000_000_000
FREE = {"size": 100 * GB, "available": 60 * GB}


def ring(size):
    """Names to the fabric ports of a ring: cable i joins nodes i and i+1, two rails each."""
    ports = {f"n{number}": [] for number in range(size)}
    for cable in range(size):
        for rail in (0, 1):
            for end, node in ((1, cable), (2, (cable + 1) % size)):
                address = f"10.{cable}.{rail}.{end}"
                row = {"address": address, "netdev": f"net{cable}{rail}", "subnet": f"10.{cable}.{rail}.0/24"}
                ports[f"n{node}"].append(row)
    return ports


def nodes(looks, ports=None):
    """looks: what each node has; a text is a look that failed."""
    ports = ports or ring(len(looks))
    rows = []
    for rank, (name, look) in enumerate(looks.items()):
        found = {"msg": look} if isinstance(look, str) else {"images": {}, "disk": FREE, **look}
        rows.append({"name": name, "ring_rank": rank, "fabric_ports": ports[name], "look": found})
    return image.nodes_of(rows)


HAS, LACKS = {"images": {ID: 10 * GB}}, {}
PULLED = {"images": {ID: 10 * GB}, "reference_id": ID}
BY_ID, BY_NAME = image.Wanted("docker", image_id=ID), image.Wanted("docker", NAME, assumed_bytes=8 * GB)


def actions(decision):
    return {name: (step.action, step.wave) for name, step in decision.steps.items()}


def failed(decision):
    return [check for check in decision.checks if not check.ok]


@pytest.mark.parametrize(
    ("wanted", "looks", "expected", "moved"),
    [
        (BY_ID, {"n0": HAS, "n1": HAS, "n2": HAS}, {"n0": ("keep", 0), "n1": ("keep", 0), "n2": ("keep", 0)}, False),
        (BY_ID, {"n0": HAS, "n1": LACKS, "n2": LACKS}, {"n0": ("keep", 0), "n1": ("take", 1), "n2": ("take", 1)}, True),
        (BY_ID, {"n0": LACKS, "n1": HAS, "n2": LACKS}, {"n0": ("take", 1), "n1": ("keep", 0), "n2": ("take", 1)}, True),
        (
            BY_ID,
            {"n0": HAS, "n1": LACKS, "n2": LACKS, "n3": LACKS},
            {"n0": ("keep", 0), "n1": ("take", 1), "n2": ("take", 2), "n3": ("take", 1)},
            True,
        ),
        (BY_NAME, {"n0": LACKS, "n1": LACKS}, {"n0": ("pull", 0), "n1": ("take", 1)}, True),
        (BY_NAME, {"n0": PULLED, "n1": LACKS}, {"n0": ("keep", 0), "n1": ("take", 1)}, True),
        (BY_NAME, {"n0": PULLED, "n1": HAS}, {"n0": ("keep", 0), "n1": ("keep", 0)}, False),
        (BY_NAME, {"n0": HAS, "n1": PULLED}, {"n0": ("keep", 0), "n1": ("keep", 0)}, False),
        (
            image.Wanted("docker", image_id=ID, archive="/a.tar"),
            {"n0": {"archive_ids": [OTHER, ID]}, "n1": LACKS},
            {"n0": ("load", 0), "n1": ("take", 1)},
            True,
        ),
    ],
)
def test_who_does_what(wanted, looks, expected, moved):
    decision = image.decide(wanted, nodes(looks), 85)
    assert (actions(decision), decision.moved, failed(decision)) == (expected, moved, [])
    assert decision.waves == max(wave for _action, wave in expected.values())


def test_a_node_takes_it_over_the_cable_that_joins_it_to_one_that_has_it_which_listens_there_alone():
    decision = image.decide(BY_ID, nodes({"n0": HAS, "n1": LACKS, "n2": LACKS}), 85)
    assert set(decision.steps["n1"].sources) == {"10.0.0.1", "10.0.1.1"}
    assert set(decision.steps["n2"].sources) == {"10.2.0.2", "10.2.1.2"}
    assert {row["address"] for row in decision.steps["n0"].listen} == {"10.0.0.1", "10.0.1.1", "10.2.0.2", "10.2.1.2"}
    assert decision.steps["n1"].listen == () and decision.steps["n1"].givers == ("n0",)


def test_the_far_node_of_four_takes_it_from_those_that_have_taken_it_before():
    steps = image.decide(BY_ID, nodes({"n0": HAS, "n1": LACKS, "n2": LACKS, "n3": LACKS}), 85).steps
    assert set(steps["n2"].givers) == {"n1", "n3"} and steps["n1"].listen and steps["n3"].listen


@pytest.mark.parametrize(
    ("wanted", "looks", "node", "said"),
    [
        (BY_ID, {"n0": LACKS, "n1": LACKS}, "n0", f"found no node has {ID}, expected the image on one node"),
        (BY_ID, {"n0": "docker is not installed", "n1": HAS}, "n0", "found docker is not installed"),
        (BY_ID, {"n0": HAS, "n1": "unreachable"}, "n1", "found unreachable"),
        (
            image.Wanted("docker", NAME),
            {"n0": {"reference_id": ID}, "n1": {"reference_id": OTHER}},
            "n1",
            "is sha256:bbbbbbbbbbbb here, expected one image of that name on all nodes (n0 has sha256:aaaaaaaaaaaa, n1 has",
        ),
        (
            image.Wanted("docker", image_id=ID, archive="/a.tar"),
            {"n0": {"archive_ids": [OTHER]}, "n1": LACKS},
            "n0",
            f"found /a.tar holds {OTHER}, expected {ID}. Cure: set image_id in engine_overrides to {OTHER}",
        ),
        (
            image.Wanted("docker", NAME, archive="/a.tar"),
            {"n0": {"archive_ids": [OTHER]}, "n1": LACKS},
            "n0",
            "expected image_id in the profile, since an archive cannot show",
        ),
        (
            image.Wanted("docker", image_id=ID, archive="/a.tar"),
            {"n0": {"archive_problem": "/a.tar: No such file"}, "n1": LACKS},
            "n0",
            "found /a.tar: No such file",
        ),
    ],
)
def test_what_stands_in_the_way_is_said_and_nothing_is_done(wanted, looks, node, said):
    decision = image.decide(wanted, nodes(looks), 85)
    lines = [text for text in map(_line, failed(decision)) if text.startswith(f"{node}:")]
    assert any(said in line for line in lines), lines
    assert not decision.moved


def _line(check):
    return f"{check.node}: found {check.found}, expected {check.expected}. Cure: {check.cure}"


def test_a_node_without_a_way_over_the_fabric_is_named():
    ports = ring(3)
    ports["n2"] = []
    decision = image.decide(BY_ID, nodes({"n0": HAS, "n1": LACKS, "n2": LACKS}, ports), 85)
    (check,) = failed(decision)
    assert (check.node, decision.steps["n2"].action) == ("n2", "none") and "no fabric address" in check.found


@pytest.mark.parametrize(
    ("available", "ceiling", "refused"),
    [
        ({"n0": 60, "n1": 60, "n2": 60}, 85, []),
        ({"n0": 60, "n1": 35, "n2": 60}, 85, []),  # 65 used and twice 10
        ({"n0": 60, "n1": 34, "n2": 60}, 85, ["n1"]),
        ({"n0": 34, "n1": 60, "n2": 60}, 85, ["n0"]),  # both take it from n0, which writes it down for each
        ({"n0": 35, "n1": 60, "n2": 60}, 85, []),
        ({"n0": 60, "n1": 60, "n2": 60}, 50, ["n0", "n1", "n2"]),
    ],
)
def test_the_disk_is_counted_before_a_byte_moves(available, ceiling, refused):
    looks = {
        name: {**(HAS if name == "n0" else LACKS), "disk": {"size": 100 * GB, "available": free * GB}}
        for name, free in available.items()
    }
    decision = image.decide(BY_ID, nodes(looks), ceiling)
    assert [check.node for check in failed(decision)] == refused
    assert all(check.id == "engine.image_budget" and "free " in check.cure for check in failed(decision))


def test_the_origin_is_counted_with_what_it_brings_and_then_gives():
    looks = {"n0": {"disk": {"size": 100 * GB, "available": 38 * GB}}, "n1": LACKS, "n2": LACKS}
    decision = image.decide(BY_NAME, nodes(looks), 85)
    assert [check.node for check in failed(decision)] == ["n0"]  # 62 used, 8 to keep, 8 for each of two neighbours
    assert "86.0 GB of 100.0 GB" in failed(decision)[0].found


def test_a_node_that_is_too_full_already_and_takes_nothing_is_no_reason():
    full = {"images": {ID: GB}, "disk": {"size": 100 * GB, "available": GB}}
    assert image.decide(BY_ID, nodes({"n0": full, "n1": full}), 85).checks == ()


UNIT = {**HAS, "unit_image": ID}


@pytest.mark.parametrize(
    ("wanted", "looks", "bad"),
    [
        (BY_ID, {"n0": UNIT, "n1": UNIT}, {}),
        (BY_ID, {"n0": UNIT, "n1": LACKS}, {"n1": f"no image {ID}"}),
        (BY_ID, {"n0": UNIT, "n1": {**HAS, "unit_image": OTHER}}, {"n1": f"its unit runs {OTHER}"}),
        (BY_ID, {"n0": UNIT, "n1": "no docker"}, {"n1": "no docker"}),
        (BY_NAME, {"n0": {**UNIT, "reference_id": ID}, "n1": UNIT}, {}),
        (BY_NAME, {"n0": UNIT, "n1": UNIT}, {}),  # the name went, the unit of the first node tells
        (BY_NAME, {"n0": LACKS, "n1": LACKS}, {"n0": f"no image {NAME}", "n1": f"no image {NAME}"}),
        (
            BY_NAME,
            {"n0": {**UNIT, "reference_id": ID}, "n1": {**UNIT, "reference_id": OTHER}},
            {"n0": f"{NAME} is sha256:{'a' * 12} here", "n1": f"{NAME} is sha256:{'b' * 12} here"},
        ),
    ],
)
def test_the_check_names_each_node_that_has_not_the_image(wanted, looks, bad):
    found = image.checks(wanted, nodes(looks))
    assert {check.node: check.found for check in found if not check.ok} == bad
    assert len(found) == len(looks) and all(check.id == "engine.image" for check in found)
    assert all(check.cure for check in found if not check.ok)


def test_before_the_unit_is_written_only_the_image_counts():
    looks = {"n0": UNIT, "n1": {**HAS, "unit_image": OTHER}}
    assert all(check.ok for check in image.checks(BY_ID, nodes(looks), units_too=False))


def test_what_a_node_does_is_told_in_words():
    decision = image.decide(BY_ID, nodes({"n0": HAS, "n1": LACKS}), 85)
    assert image.move(decision, "n1", "") == f"takes {image.short(ID)} (10.0 GB) from n0 at " + ", ".join(
        decision.steps["n1"].sources
    )
    assert image.move(decision, "n0", "") == ""
    assert image.move(image.decide(BY_NAME, nodes({"n0": LACKS, "n1": LACKS}), 85), "n0", NAME) == f"pulls {NAME}"


@pytest.mark.parametrize(
    ("action", "there", "changed"), [("take", False, True), ("take", True, False), ("none", False, False)]
)
def test_an_image_that_is_there_is_not_brought(action, there, changed):
    assert image.plan_step(action, ID, there, "takes it").changed is changed


def test_a_host_without_the_inventorys_variables_is_named():
    with pytest.raises(fanout.FanoutError, match="n0: fabric_ports and ring_rank"):
        image.nodes_of([{"name": "n0", "look": {}}])


@pytest.mark.parametrize("wrong", [{"port": 80}, {"ceiling_percent": 0}, {"timeout_s": 0}, {"stall_timeout_s": 90000}])
def test_options_out_of_range_are_named(wrong):
    (problem,) = image.options_problems({"port": 7874, **wrong})
    assert next(iter(wrong)) in problem and "expected an integer from" in problem
