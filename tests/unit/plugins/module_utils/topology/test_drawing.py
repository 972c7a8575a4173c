# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing: complete, self-contained, nothing on top of anything else."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.topology.addresses import host_variables
from ansible_collections.gb10.ring.plugins.module_utils.topology.drawing import svg
from ansible_collections.gb10.ring.plugins.module_utils.topology.layout import Box, arrange
from ansible_collections.gb10.ring.plugins.module_utils.topology.parse import parse_topology
from ansible_collections.gb10.ring.plugins.module_utils.topology.view import View, fabric_view

ALL_SHAPES = [("ring", size) for size in range(2, 9)] + [("pair", 2)] + [("switch", size) for size in range(2, 9)]
SVG = "{http://www.w3.org/2000/svg}"


def view(shape: str, size: int, name: str = "spark") -> View:
    nodes = [{"name": f"{name}{i}", "management_address": f"192.0.2.{10 + i}"} for i in range(1, size + 1)]
    hostvars = host_variables(parse_topology({"plugin": "gb10.ring.topology", "shape": shape, "nodes": nodes}))
    return fabric_view(hostvars, hostvars)


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_every_node_port_leg_and_address_is_there_once(shape, size):
    plan = view(shape, size)
    said = texts(svg(plan))
    ends = [end for leg in plan.legs for end in leg.ends]
    assert sorted(text for text in said if re.fullmatch(r"[\d.]{7,}", text)) == sorted(end.address for end in ends)
    for node in plan.nodes:
        assert said.count(node.name) == 1
        assert any(text.endswith(node.management_address) for text in said)
    for leg in plan.legs:
        assert said.count(f"rail {leg.rail} {leg.subnet}") == 1
    assert said.count("P0") + said.count("P1") == len(ends) // 2
    cables = [text for text in said if text.startswith("cable ")]
    assert cables == ([] if shape == "switch" else [f"cable {n}" for n in range(1, len(plan.legs) // 2 + 1)])


@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_nothing_leaves_the_page_or_comes_from_outside(shape, size):
    drawing = svg(view(shape, size))
    root = ElementTree.fromstring(drawing)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "desc",
        "rect",
        "text",
        "g",
        "line",
    }
    names = {name for element in root.iter() for name in element.attrib}
    assert [name for name in names if re.match(r"href|src|style|class|on|\{", name)] == []
    assert "url(" not in drawing
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    (group,) = root.findall(f"{SVG}g")
    dx, dy = map(float, re.findall(r"-?[\d.]+", group.attrib["transform"]))
    for box in group.iter(f"{SVG}rect"):
        x, y = dx + float(box.attrib["x"]), dy + float(box.attrib["y"])
        assert x >= 0
        assert x + float(box.attrib["width"]) <= width
        assert y >= 50  # the heading is above
        assert y + float(box.attrib["height"]) <= height - 50  # the legend is below


@pytest.mark.parametrize(("node", "label"), [((318, 145), (176, 64)), ((600, 107), (176, 64)), ((200, 145), (220, 64))])
@pytest.mark.parametrize(("shape", "size"), ALL_SHAPES)
def test_boxes_and_signs_are_apart_and_no_cable_goes_through_another_node(shape, size, node, label):
    layout = arrange(shape, size, node, label)
    signs = [sign for cable in layout.cables for sign in cable.signs[: 1 if shape == "switch" else 2]]
    for one, other in combinations([*layout.boxes(), *signs], 2):
        assert not one.meets(other, -0.5)  # a sign touches its node
    for number, cable in enumerate(layout.cables):
        others = [box for rank, box in enumerate(layout.nodes) if rank not in (number, (number + 1) % size)]
        (x1, y1), (x2, y2) = cable.ends
        for step in range(101):
            point = Box(x1 + (x2 - x1) * step / 100, y1 + (y2 - y1) * step / 100, 8, 8)
            assert not any(point.meets(box) for box in others)


def test_a_drawing_of_the_same_plan_is_the_same_file():
    assert svg(view("ring", 5)) == svg(view("ring", 5))


def test_long_names_have_room():
    name = "spark-" + "x" * 54 + "-"
    root = ElementTree.fromstring(svg(view("ring", 3, name)))
    widths = [float(box.attrib["width"]) for box in root.iter(f"{SVG}rect") if box.attrib["width"] != "100%"]
    assert max(widths) > 61 * 16 * 0.6


def test_text_that_would_be_markup_is_escaped():
    plan = view("pair", 2)
    odd = View("<b>&", plan.mtu, plan.nodes, plan.legs)
    assert texts(svg(odd))[0] == "Fabric plan: <b>&, 1 cable, 2 legs, MTU 9000"


@pytest.mark.parametrize(
    ("shape", "size", "heading"),
    [
        ("ring", 3, "Fabric plan: ring of 3 nodes, 3 cables, 6 legs, MTU 9000"),
        ("pair", 2, "Fabric plan: pair, 1 cable, 2 legs, MTU 9000"),
        ("switch", 4, "Fabric plan: 4 nodes on a switch, 4 cables, 2 legs, MTU 9000"),
    ],
)
def test_heading(shape, size, heading):
    drawing = svg(view(shape, size))
    assert texts(drawing)[0] == heading
    assert f"<title>{heading}</title>" in drawing
