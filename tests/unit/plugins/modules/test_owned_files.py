# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module owned_files on a tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils import made
from ansible_collections.gb10.ring.plugins.modules import owned_files


def run(capsys: pytest.CaptureFixture[str], paths: list[str], state: Path, check: bool = False) -> dict[str, Any]:
    arguments = {"paths": paths, "state_root": str(state), "_ansible_check_mode": check}
    with patch_module_args(arguments), pytest.raises(SystemExit):
        owned_files.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_files_go_and_the_directories_made_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, unit, cache = tmp_path / "var/gb10-ring", tmp_path / "etc/containers/x.container", tmp_path / "cache"
    made.note([unit], state)
    unit.parent.mkdir(parents=True)
    unit.write_text("x")
    (cache / "kernels").mkdir(parents=True)
    paths = [str(unit), str(cache), str(tmp_path / "absent/file")]
    dry = run(capsys, paths, state, check=True)
    assert unit.exists() and cache.exists()
    wet = run(capsys, paths, state)
    assert dry == wet
    assert wet["changed"] and wet["removed"] == paths[:2]
    assert [part["before"] for part in wet["diff"]] == ["file\n", "directory\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["var"]
    assert not state.exists()
    assert not run(capsys, paths, state)["changed"]


def test_a_root_takes_the_directories_made_for_it_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a checkpoint_root that did not exist: staging leaves the record in it."""
    (tmp_path / "srv").mkdir()
    root = tmp_path / "srv/models/ring"
    made.note([root / "NAME"], root)
    (root / "NAME/revisions").mkdir(parents=True)
    run(capsys, [str(root)], tmp_path / "var/gb10-ring")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["srv", "var"]


def test_a_path_that_is_nobodys_to_remove_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = run(capsys, ["/etc"], tmp_path)
    assert failed["failed"] and "paths is /etc, expected absolute paths" in failed["msg"]
