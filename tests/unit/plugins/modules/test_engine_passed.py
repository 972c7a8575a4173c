# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import stat

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import receipt, row_state
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.modules import engine_passed
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_systemd import Systemd

RECORD, UNIT = "gb10-ring/engine.json", "systemd/system/gb10-ring-engine.service"
QUADLET = "containers/systemd/gb10-ring-engine.container"


class Node:
    """A node's /etc with an engine, and what is kept of it."""

    def __init__(self, root, capsys) -> None:
        self.root, self.capsys = root, capsys
        self.etc, self.kept = root / "etc", root / "state/engine/passed/passed.json"
        self.model = root / "revisions/r1"
        self.model.mkdir(parents=True)

    def write(self, identity, renderer="docker", unit=UNIT, model=None, memory=None, **more):
        """record, place: further keys of engine.json and of its model."""
        place = {"path": str(model or self.model), **more.get("place", {})}
        record = {"hash": identity, "profile": "lab", "renderer": renderer, "model": place, **more.get("record", {})}
        record |= {"expected": {"memory": memory}} if memory else {}
        texts = {RECORD: json.dumps(record), "gb10-ring/engine-gid.py": "gid\n", unit: f"# {identity}\n"}
        for path, text in texts.items():
            (self.etc / path).parent.mkdir(parents=True, exist_ok=True)
            (self.etc / path).write_text(text)

    def files(self):
        return {str(path.relative_to(self.etc)): path.read_text() for path in self.etc.rglob("*") if path.is_file()}

    def call(self, state, check=False, group=None):
        arguments = {"state": state, "etc_root": str(self.etc), "state_root": str(self.root / "state")}
        given = {**arguments, "_ansible_check_mode": check, **({"group": group} if group else {})}
        with patch_module_args(given), pytest.raises(SystemExit):
            engine_passed.main()
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture
def node(tmp_path, capsys, monkeypatch):
    one = Node(tmp_path, capsys)
    one.systemd = Systemd()
    monkeypatch.setattr(machine, "run", one.systemd.run)
    return one


GROUP = {"spark1": "aa", "spark2": "bb"}


def test_what_a_rank_takes_comes_with_the_configuration_that_goes_back(node):
    assert node.call("restored", check=True)["memory"] == {}
    node.write("aa")
    assert node.call("kept", group=GROUP)["memory"] == {}  # of a record that does not say
    need = {"weights_gib": 82.5, "utilization": 0.8, "page_cache": "drop"}
    node.write("bb", memory=need)
    node.call("kept", group=GROUP)
    node.write("cc")
    assert node.call("restored")["memory"] == need


def test_what_passed_is_kept_once(node):
    node.write("aa")
    dry = node.call("kept", check=True, group=GROUP)
    assert dry["changed"] and not node.kept.exists()
    kept = node.call("kept", group=GROUP)
    assert (kept["changed"], kept["hash"], kept["group"], kept["problem"]) == (True, "aa", GROUP, "")
    assert stat.S_IMODE(node.kept.stat().st_mode) == 0o600
    text = node.kept.read_text()
    again = node.call("kept", group=GROUP)
    assert not again["changed"] and node.kept.read_text() == text
    assert again["described"].startswith("lab, configuration aa, which passed at 20")
    assert node.systemd.calls == []


def test_a_configuration_that_passes_takes_the_place_of_the_one_before(node):
    node.write("aa")
    node.call("kept", group=GROUP)
    node.write("cc")
    assert node.call("kept", group={**GROUP, "spark1": "cc"})["hash"] == "cc"
    # another rank's configuration has changed, this one's has not
    assert node.call("kept", group={"spark1": "cc", "spark2": "dd"})["changed"]


def test_what_has_not_passed_is_told_from_what_has(node):
    node.write("aa")
    assert node.call("restored", check=True)["unproven"]  # nothing has passed
    assert node.call("kept", group=GROUP)["unproven"]
    assert not node.call("restored", check=True)["unproven"]
    assert not node.call("kept", group=GROUP)["unproven"]
    node.write("cc")
    assert node.call("restored", check=True)["unproven"]
    (node.etc / RECORD).unlink()
    assert node.call("restored", check=True)["unproven"]


@pytest.mark.parametrize("unit", [UNIT, QUADLET])
def test_going_back(node, unit):
    node.write("aa")
    node.call("kept", group=GROUP)
    before = node.files()
    (node.etc / UNIT).unlink()
    node.write("cc", unit=unit)
    changed = node.files()
    dry = node.call("restored", check=True)
    assert dry["changed"] and dry["differs"] and node.files() == changed and node.systemd.calls == []
    back = node.call("restored")
    assert (back["changed"], back["hash"], back["problem"]) == (True, "aa", "")
    assert node.files() == before
    assert node.systemd.calls == ["daemon-reload", "enable"]
    again = node.call("restored")
    assert not again["changed"] and not again["differs"]


def test_a_quadlet_is_not_enabled(node):
    node.write("aa", renderer="podman", unit=QUADLET)
    node.call("kept", group=GROUP)
    node.write("cc", renderer="podman", unit=QUADLET)
    assert node.call("restored")["changed"]
    assert node.systemd.calls == ["daemon-reload"]


def test_without_one_that_passed_nothing_is_changed(node):
    node.write("cc")
    back = node.call("restored")
    assert (back["changed"], back["problem"]) == (False, "no configuration has passed on this node")
    assert (back["hash"], back["described"], back["group"]) == ("", "", {})


def test_a_revision_that_is_gone_is_said(node):
    node.write("aa")
    node.call("kept", group=GROUP)
    node.write("cc")
    node.model.rmdir()
    before = node.files()
    back = node.call("restored")
    assert not back["changed"] and node.files() == before
    assert f"{node.model} is not staged any more, which lab, configuration aa" in back["problem"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {}, "group": {}, "at": 1, "hash": "aa"}', "no JSON"])
def test_what_is_kept_and_makes_no_sense_is_nothing(node, text):
    node.write("cc")
    node.kept.parent.mkdir(parents=True)
    node.kept.write_text(text)
    assert node.call("restored")["problem"] == "no configuration has passed on this node"
    assert node.call("absent")["changed"]
    assert not node.kept.parent.parent.exists()


def test_nothing_to_keep_is_an_error(node):
    node.etc.mkdir()
    failed = node.call("kept", group=GROUP)
    assert failed["failed"] and "there is no /etc/gb10-ring/engine.json with a hash to keep" in failed["msg"]


def test_it_is_forgotten_once(node):
    node.write("aa")
    node.call("kept", group=GROUP)
    assert node.call("absent", check=True)["changed"] and node.kept.exists()
    gone = node.call("absent")
    assert gone["changed"] and not (node.root / "state/engine").exists()
    assert not node.call("absent")["changed"]


@pytest.mark.parametrize(
    ("digest", "rank", "why"),
    [
        ("md5:old", 1, ""),
        ("md5:new", 1, "holds Engram rows of s as revision r2 has them, not as r1 does"),
        ("md5:old", 2, "which are not those of its rank"),
    ],
)
def test_nothing_goes_back_to_a_unit_that_would_read_other_rows(node, digest, rank, why):
    """The directory of rows that all revisions share may have been brought to another one since."""
    layout, rows = Layout(str(node.root), "tiny"), node.root / "rows"
    layout.receipts.mkdir(parents=True)
    layout.receipt("r1").write_text(
        receipt.render(receipt.Receipt("tiny", "r1", "now", (receipt.Entry("s", 9, "md5:old", 5),)))
    )
    rows.mkdir()
    held = row_state.Held("s", 9, digest, "", ((0, 9),), 5)
    state = row_state.RowState("here", {"1": (0, 9)}, rank, 3, "vllm", "r2", "directory", "now", (held,))
    (rows / "engram-local.json").write_text(row_state.render(state))
    model = {"root": str(layout.base), "revision": "r1", "engram": str(rows)}
    node.write("aa", record={"engine": "vllm", "size": 3, "rank": 1}, place=model)
    node.call("kept", group=GROUP)
    node.write("cc")
    back = node.call("restored")
    assert (why in back["problem"]) if why else not back["problem"]
    assert back["changed"] is not bool(why)
