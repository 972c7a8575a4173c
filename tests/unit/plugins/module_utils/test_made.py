# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that were made for our files: recorded, removed when empty, left to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import made
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, write_text


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "etc/systemd").mkdir(parents=True)
    return tmp_path / "etc"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "var/gb10-ring"


def write(path: Path, state: Path) -> None:
    made.note([path], state)
    write_text(path, "x\n")


def test_only_what_is_missing_is_recorded_the_outermost_first(etc: Path) -> None:
    wanted = [etc / "systemd/a.conf.d/x/90.conf", etc / "systemd/unit", etc / "gb10-ring/engine.json"]
    assert made.missing(wanted) == [str(etc / "systemd/a.conf.d"), str(etc / "systemd/a.conf.d/x")]


def test_empty_ones_go_with_the_record_and_the_directories_of_our_name(etc: Path, state: Path) -> None:
    file, ours = etc / "systemd/a.conf.d/x/90.conf", etc / "gb10-ring/engine.json"
    write(file, state)
    write(ours, state)
    assert made.recorded(state) == [str(file.parent.parent), str(file.parent)]
    file.unlink()
    ours.unlink()
    made.tidy(state, [ours.parent])
    assert sorted(path.name for path in etc.rglob("*")) == ["systemd"]
    assert not state.exists()


def test_a_second_file_leaves_the_record_as_it_is(etc: Path, state: Path) -> None:
    write(etc / "a.d/90-gb10-ring.conf", state)
    write(etc / "a.d/91-gb10-ring.conf", state)
    assert made.recorded(state) == [str(etc / "a.d")]


@pytest.mark.parametrize(("left", "kept"), [("91-gb10-ring.conf", True), ("91-of-a-person.conf", False)])
def test_what_is_not_empty_stays_and_is_known_while_something_of_ours_is_in_it(
    etc: Path, state: Path, left: str, kept: bool
) -> None:
    """Whoever is taken back last removes the directory; one that others use by then is theirs."""
    write(etc / "a.d/90-gb10-ring.conf", state)
    write_text(etc / "a.d" / left, "x\n")
    (etc / "a.d/90-gb10-ring.conf").unlink()
    made.tidy(state, ())
    assert (etc / "a.d").is_dir()
    assert made.recorded(state) == ([str(etc / "a.d")] if kept else [])
    (etc / "a.d" / left).unlink()
    made.tidy(state, ())
    assert (etc / "a.d").exists() is not kept


def test_without_a_record_directories_of_others_stay(etc: Path, state: Path) -> None:
    (etc / "a.d").mkdir()
    made.tidy(state, [etc / "gb10-ring"])
    assert (etc / "a.d").is_dir()


def test_a_directory_of_records_with_another_name_stays(etc: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made.tidy(elsewhere, ())
    assert elsewhere.is_dir()


def test_a_broken_record_is_named(state: Path) -> None:
    write_text(state / made.RECORD, "{")
    with pytest.raises(HostError, match=r"directories-before\.json is not the JSON"):
        made.tidy(state, ())


def test_removals_name_what_exists(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "f").write_text("x")
    (tmp_path / "l").symlink_to("nowhere")
    paths = [str(tmp_path / name) for name in ("d", "f", "l", "absent")]
    changes = made.removals(paths)
    assert [(Path(change.what).name, change.before) for change in changes] == [
        ("d", "directory"),
        ("f", "file"),
        ("l", "link to nowhere"),
    ]
    for path in paths:
        made.remove(Path(path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["/", "/etc", "//etc/", "/home/.", "/srv", "etc/gb10-ring", "/var/lib/gb10-ring/../../x"]
)
def test_a_path_that_is_nobodys_to_remove(path: str) -> None:
    with pytest.raises(HostError, match=r"checkpoint_root is .*, expected absolute paths"):
        made.removals([path], "checkpoint_root")


def test_a_directory_in_the_root_that_a_user_made_is_theirs_to_name() -> None:
    assert made.removals(["/gb10-models-that-are-not-here"]) == []
