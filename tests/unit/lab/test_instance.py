# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.lab.instance import Instance, LabError, instance_name, instances


def test_two_checkouts_and_two_instances_share_no_name() -> None:
    labs = [Instance(name, Path(checkout)) for name in ("default", "test") for checkout in ("/a", "/b")]
    assert len({lab.tag for lab in labs}) == 4
    assert all(len(lab.netns("spark1")) < 32 for lab in labs)


def test_names_do_not_change_between_calls() -> None:
    assert Instance("default", Path("/a")).netns("ctl") == Instance("default", Path("/a")).netns("ctl")


@pytest.mark.parametrize(
    ("option", "environment", "expected"),
    [
        (None, {}, "default"),
        (None, {"LAB_INSTANCE": "test"}, "test"),
        ("mine", {"LAB_INSTANCE": "test"}, "mine"),
        (None, {"LAB_INSTANCE": ""}, "default"),
    ],
)
def test_instance_name(option: str | None, environment: dict[str, str], expected: str) -> None:
    assert instance_name(option, environment) == expected


def test_instances_of_a_checkout(tmp_path: Path) -> None:
    for name in ("a/run", "b/run", "base/run", "keys", "deb-cache"):
        (tmp_path / ".lab" / name).mkdir(parents=True)
    assert [lab.name for lab in instances(Instance("default", tmp_path))] == ["a", "b"]
    assert instances(Instance("default", tmp_path / "nowhere")) == []


@pytest.mark.parametrize("name", ["Base", "a b", "../x", "-x", "x" * 40, "base", "keys", "checkpoint-1"])
def test_refused_instance_names(name: str) -> None:
    with pytest.raises(LabError, match="instance"):
        instance_name(name, {})


@pytest.mark.parametrize(
    ("checkout", "inside"),
    [("/srv/gb10", True), ("/home/somebody/with/a/deep/tree/of/folders/and/checkouts/of/gb10.ring", False)],
)
def test_sockets_stay_below_the_length_of_a_unix_path(checkout: str, inside: bool) -> None:
    lab = Instance("default", Path(checkout))
    assert (lab.sockets == lab.directory / "run") is inside
    assert len(str(lab.control_path / ("x" * 27))) < 108
    assert inside or lab.sockets == Path("/run") / lab.tag
