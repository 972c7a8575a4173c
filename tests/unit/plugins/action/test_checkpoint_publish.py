# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gb10.ring.plugins.action import checkpoint_publish
from ansible_collections.gb10.ring.plugins.plugin_utils import terminal
from ansible_collections.gb10.ring.tests.unit.fixtures.fake_s3 import FakeS3, refusal

KEY = "org/tiny/checkpoint-manifest.json"


@pytest.fixture
def store(monkeypatch):
    store = FakeS3()
    monkeypatch.setattr(checkpoint_publish.s3, "connect", lambda _settings: store)
    return store


@pytest.fixture
def source(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model").write_text("weights")
    return tmp_path


def run(source, check=False, **more):
    arguments = {"bucket": "models", "prefix": "org/tiny", "source": str(source), "secret_key": "very-secret"}
    arguments |= {"access_key": "key", **more}
    task = SimpleNamespace(
        args=arguments, async_val=0, check_mode=check, diff=False, delegate_to=None, environment=None
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return checkpoint_publish.ActionModule(task, connection, SimpleNamespace(), None, None, None).run(task_vars={})


def test_four_steps(store, source):
    results = [run(source, check) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert results[0]["diff"] == results[1]["diff"] and results[2]["diff"] == []
    assert results[0]["msg"] == ("s3://models/org/tiny at AWS: 2 files to upload (9 B), manifest absent")
    assert results[3]["msg"] == "s3://models/org/tiny at AWS: everything is published"
    assert sorted(store.objects) == [KEY, "org/tiny/config.json", "org/tiny/model"]
    revision = json.loads(store.objects[KEY][0])["revision"]
    assert [result["published"]["revision"] for result in results] == ["", revision, revision, revision]
    assert results[1]["published"]["manifest"] == KEY and results[1]["published"]["upload"] == {"files": 2, "bytes": 9}
    assert "very-secret" not in str(results)


def test_check_mode_writes_nothing(store, source):
    run(source, check=True)
    assert store.objects == {} and {method for method, _key in store.calls} == {"list_objects_v2"}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"upload_part_mib": 8}, "option upload_part_mib is 8, allowed are 16 to 4096"),
        ({"name": "../x"}, "not usable as a directory name"),
        ({"files": ["missing"]}, "missing is not there"),
    ],
)
def test_what_cannot_be_published_is_one_message(store, source, more, text):
    result = run(source, **more)
    assert result["failed"] and text in result["msg"]
    assert store.calls == []


def test_a_refusal_of_the_store_is_one_message(store, source):
    store.fails["put_object"] = [refusal("AccessDenied"), refusal("AccessDenied")]
    result = run(source)
    assert result["failed"] and "this key may not write there" in result["msg"]


def test_options_are_checked(store):
    with pytest.raises(AnsibleError, match="source"):
        checkpoint_publish.ActionModule(
            SimpleNamespace(args={"bucket": "b"}, async_val=0, check_mode=False, diff=False, environment=None),
            SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)),
            SimpleNamespace(),
            None,
            None,
            None,
        ).run(task_vars={})


def test_progress_is_shown_when_asked_for(store, source, monkeypatch):
    shown = []
    monkeypatch.setattr(terminal, "PACE", 0.0)
    monkeypatch.setattr(checkpoint_publish, "Display", lambda: SimpleNamespace(display=shown.append))
    monkeypatch.setattr(
        checkpoint_publish.publishing, "apply", lambda job, _seen: _wait_for(shown, job) or '{"revision": "r"}'
    )
    run(source, progress="on")
    assert shown[0].startswith("publish: 0/2 files, ")


def _wait_for(shown, job):
    job.moved(3, False)
    job.moved(4, True)
    for _time in range(500):
        if shown:
            return
        terminal.threading.Event().wait(0.01)
