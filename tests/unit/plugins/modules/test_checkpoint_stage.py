# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest
from ansible.module_utils.testing import patch_module_args
from awscrt import checksums

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import frontend, inspection, manifest, source
from ansible_collections.gb10.ring.plugins.modules import checkpoint_info, checkpoint_stage
from ansible_collections.gb10.ring.tests.unit.fixtures import object_server

BODIES = {"a": b"a" * 5000, "b": b"b" * 70_000}


@pytest.fixture
def store():
    with object_server.serving(**BODIES) as running:
        yield running


def plan(store):
    files = [
        manifest.File(path, len(body), store.etag(path), f"crc64nvme:{checksums.crc64nvme(body):016x}")
        for path, body in store.objects.items()
    ]
    return manifest.make("tiny", "", files).to_dict()


def call(capsys, module, arguments):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def run(capsys, store, root, **more):
    arguments = {"plan": plan(store), "root": str(root), "node": "spark1", "disk_ceiling_percent": 100}
    if more.get("phase") != "budget" and "_ansible_check_mode" not in more:
        sources = root.parent / f"{root.name}.sources"
        sources.write_text(source.render(store.sources()))
        arguments["sources_file"] = str(sources)
    return call(capsys, checkpoint_stage, {**arguments, **more})


def look(capsys, root, **more):
    return call(capsys, checkpoint_info, {"root": str(root), "name": "tiny", "node": "spark1", **more})


def test_four_steps(capsys, store, tmp_path):
    check = {"_ansible_check_mode": True}
    results = [run(capsys, store, tmp_path, **step) for step in (check, {}, check, {})]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert results[0]["diff"] == results[1]["diff"] and results[2]["diff"] == []
    assert results[0]["summary"]["fetch"] == {"files": 2, "bytes": 75_000}
    assert results[3]["summary"]["keep"]["files"] == 2
    assert {path.name for path in (tmp_path / "tiny/revisions").rglob("*") if path.is_file()} == {"a", "b"}


def test_check_mode_and_budget_touch_nothing(capsys, store, tmp_path):
    run(capsys, store, tmp_path, _ansible_check_mode=True)
    result = run(capsys, store, tmp_path, phase="budget")
    assert result["lacking"] == sorted(store.objects)
    assert not result["changed"]
    assert [(check["id"], check["ok"]) for check in result["checks"]] == [
        ("checkpoint.revision", True),
        ("checkpoint.budget", True),
    ]
    assert {name: result["budget"][name] for name in ("node", "needed", "reusable", "short")} == {
        "node": "spark1",
        "needed": 75_000,
        "reusable": 0,
        "short": 0,
    }
    assert list(tmp_path.iterdir()) == [] and store.seen == []


def test_budget_reports_where_stage_refuses(capsys, store, tmp_path):
    assert not run(capsys, store, tmp_path, phase="budget", disk_ceiling_percent=1)["checks"][1]["ok"]
    refused = run(capsys, store, tmp_path, disk_ceiling_percent=1)
    assert refused["failed"] and refused["msg"].startswith("spark1: not enough room: ")


def test_a_node_without_awscrt_asks_for_it_first(capsys, store, tmp_path, monkeypatch):
    monkeypatch.setattr(frontend, "load_crc64", lambda _path: None)
    result = run(capsys, store, tmp_path)
    assert result["needs_runtime"] and not result["changed"] and result["machine"]
    assert store.seen == []
    sent = run(capsys, store, tmp_path, wheel=str(tmp_path / "missing.whl"))
    assert sent["failed"] and "cannot unpack awscrt" in sent["msg"]


def test_without_addresses_it_asks_for_them_and_does_nothing(capsys, store, tmp_path):
    result = run(capsys, store, tmp_path, sources_file=None)
    assert result["needs_sources"] and not result["changed"] and store.seen == []
    assert result["summary"]["fetch"] == {"files": 2, "bytes": 75_000}
    run(capsys, store, tmp_path)
    again = run(capsys, store, tmp_path, sources_file=None)
    assert not again["changed"] and not again["needs_sources"]


def test_the_file_with_the_addresses_is_gone_and_the_result_has_the_numbers(capsys, store, tmp_path):
    root = tmp_path / "root"
    moved = run(capsys, store, root)["moved"]
    assert (moved["s3_bytes"], moved["peer_bytes"], moved["resumed_bytes"]) == (75_000, 0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert b"signature" not in b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_expired_addresses_and_replaced_objects_are_for_the_controller(capsys, store, tmp_path):
    store.faults["a"] = [object_server.expired]
    first = run(capsys, store, tmp_path)
    assert (first["expired"], first["replaced"], first["changed"]) == (["a"], [], True)
    assert first["moved"]["s3_bytes"] == 70_000 and "expired" in first["reason"]
    store.seen.clear()
    store.etags["a"] = '"another"'
    arguments = {
        "plan": {**plan(store), "files": [{**row, "etag": f'"etag-of-{row["path"]}"'} for row in plan(store)["files"]]}
    }
    second = run(capsys, store, tmp_path, **arguments)
    assert (second["expired"], second["replaced"]) == ([], ["a"])
    assert [path for path, _headers in store.seen] == ["a"]


def test_failures_do_not_show_the_addresses(capsys, store, tmp_path):
    store.faults["a"] = [object_server.answer(403, "AccessDenied")]
    result = run(capsys, store, tmp_path)
    assert result["failed"] and "a: the store refused the signed address" in result["msg"]
    assert "secret-signature" not in json.dumps(result)


def test_a_plan_that_is_none_is_refused(capsys, tmp_path):
    result = call(capsys, checkpoint_stage, {"plan": {}, "root": str(tmp_path)})
    assert result["failed"] and "option plan is not what gb10.ring.checkpoint_plan returns" in result["msg"]


def test_info_reads_what_stage_wrote(capsys, store, tmp_path):
    revision = run(capsys, store, tmp_path)["revision"]
    before = look(capsys, tmp_path)
    assert [check["ok"] for check in before["checks"] if check["id"] == "checkpoint.current"] == [False]
    assert before["checkpoint"]["revisions"][0]["complete"]
    (tmp_path / "tiny/current").symlink_to(f"revisions/{revision}")
    good = look(capsys, tmp_path, revision=revision, verify="full")
    assert all(check["ok"] for check in good["checks"] if check["severity"] == "error")
    assert good["checkpoint"]["current"] == revision and not good["changed"]


def test_only_a_full_look_sees_bytes_that_changed_under_the_same_time(capsys, store, tmp_path):
    revision = run(capsys, store, tmp_path)["revision"]
    (tmp_path / "tiny/current").symlink_to(f"revisions/{revision}")
    path = tmp_path / f"tiny/revisions/{revision}/a"
    stat = path.stat()
    path.write_bytes(b"x" * 5000)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def files(**more):
        checks = look(capsys, tmp_path, **more)["checks"]
        return next(check for check in checks if check["id"] == "checkpoint.files")

    assert files()["ok"]
    full = files(verify="full")
    assert not full["ok"] and "a: digest crc64nvme:" in full["found"]


def test_a_full_look_without_awscrt_says_that_it_could_not_verify(capsys, store, tmp_path, monkeypatch):
    revision = run(capsys, store, tmp_path)["revision"]
    (tmp_path / "tiny/current").symlink_to(f"revisions/{revision}")
    monkeypatch.setattr(inspection, "load_crc64", lambda _path: None)
    checks = look(capsys, tmp_path, verify="full")["checks"]
    assert "cannot be verified: crc64nvme needs awscrt" in checks[1]["found"]


def test_info_at_a_negative_rate_is_refused(capsys, tmp_path):
    result = call(capsys, checkpoint_info, {"root": str(tmp_path), "name": "tiny", "node": "n", "rate_limit": -1})
    assert result["msg"] == "n: option rate_limit is -1, allowed are 0 (no limit) and more"


def test_info_of_a_name_that_would_leave_the_root_is_refused(capsys, tmp_path):
    result = call(capsys, checkpoint_info, {"root": str(tmp_path), "name": "../x", "node": "spark1"})
    assert "not usable as a directory name" in result["msg"]
