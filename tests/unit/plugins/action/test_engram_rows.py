# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from ansible_collections.gb10.ring.plugins.action import engram_rows
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, row_plan, source
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server, row_process
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import FIRST, INDEX, SECOND, THIRD

SECRETS = {"access_key": "access-key-id", "secret_key": "very-secret"}
STORE = {"bucket": "models", "prefix": "org/tiny", "endpoint_url": "http://127.0.0.1:1", **SECRETS}
RANK = {"tensor_parallel": 3, "rank": 1, "rule": "vllm"}
NEEDS = {"changed": False, "needs_runtime": False, "needs_sources": True, "summary": {"fetch": {"bytes": 5}}}
DONE = {"changed": True, "moved": {"s3_bytes": 5, "seconds": 1.0}}


class Client:
    """As much of boto3's client as planning and signing take. asked: key and range."""

    def __init__(self, objects, etags):
        self.objects, self.etags, self.asked = objects, etags, []

    def get_object(self, Key, Range, IfMatch, Bucket):  # noqa: N803
        assert Bucket == "models"
        path = Key.removeprefix("org/tiny/")
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", Range).groups())
        self.asked.append((path, first, last + 1))
        if IfMatch != self.etags[path]:
            raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[path][first : last + 1])}

    def generate_presigned_url(self, _method, Params, ExpiresIn):  # noqa: N803
        return f"http://store/{Params['Key']}?X-Amz-Expires={ExpiresIn}&X-Amz-Signature=signed"


class Action(engram_rows.ActionModule):
    """The plugin with a node that answers from a list."""

    def __init__(self, arguments, answers=(), check_mode=False):
        task = SimpleNamespace(args={**RANK, **STORE, **arguments}, async_val=0, check_mode=check_mode, diff=False)
        shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
        super().__init__(task, SimpleNamespace(_shell=shell), SimpleNamespace(), None, None, None)
        self.answers, self.calls, self.texts, self.names = list(answers), [], {}, []

    def _execute_module(self, module_name=None, module_args=None, task_vars=None, wrap_async=False):
        self.names.append(module_name)
        self.calls.append(module_args)
        return self.answers.pop(0)

    def _make_tmp_path(self, remote_user=None):
        self._connection._shell.tmpdir = "/tmp/node"
        return "/tmp/node"

    def _transfer_data(self, remote_path, data):
        self.texts[remote_path] = data

    def _fixup_perms2(self, remote_paths, remote_user=None, execute=True):
        return remote_paths

    def _remove_tmp_path(self, tmp_path, force=False):
        self._connection._shell.tmpdir = None

    def go(self):
        return self.run(task_vars={"inventory_hostname": "spark2"})


@pytest.fixture
def small():
    return engram_shards.small("nvfp4")


@pytest.fixture
def plan(small):
    return row_process.plan_of(object_server.Store(objects=dict(small.files)))


@pytest.fixture
def client(small, monkeypatch):
    store = object_server.Store()
    made = Client(dict(small.files), {path: store.etag(path) for path in small.files})
    monkeypatch.setattr(s3, "connect", lambda _settings: made)
    return made


def test_the_node_gets_its_rows_addresses_of_what_it_needs_and_no_credentials(client, small, plan):
    action = Action({"plan": plan, "placement": "directory"}, [NEEDS, DONE])
    result = action.go()
    assert result["changed"] and action.names == ["gb10.ring.engram_rows"] * 2
    first, second = action.calls
    rows = row_plan.from_dict(second["rows"])
    assert (rows.rank, rows.tp, rows.rule, rows.placement) == (1, 3, "vllm", "directory")
    assert [target.path for target in rows.targets] == [SECOND, THIRD]
    assert set(manifest.parse(second["plan"]).by_path()) == {SECOND, THIRD, INDEX}
    assert set(source.parse(action.texts[f"/tmp/node/{source.FILE}"])) == {SECOND, THIRD, INDEX}
    assert second["node"] == "spark2" and "sources_file" not in first
    assert not {*SECRETS, "bucket", "endpoint_url", "peers", "progress"} & set(second)
    assert "very-secret" not in str(action.texts) and "X-Amz" not in str(action.calls)


def test_only_headers_of_shards_are_read(client, small, plan):
    Action({"plan": plan, "placement": "shard"}, [{"changed": False}]).go()
    of_shards = [(path, first, end) for path, first, end in client.asked if path.endswith(".safetensors")]
    sizes = {path: 8 + int.from_bytes(small.files[path][:8], "little") for path in (SECOND, THIRD)}
    assert of_shards == [(path, 0, end) for path in (SECOND, THIRD) for end in (8, sizes[path])]
    assert FIRST not in {path for path, _first, _end in client.asked}


@pytest.mark.parametrize(("placement", "needed"), [("full", {"config.json"}), ("shard", {SECOND, THIRD})])
def test_files_that_no_row_comes_from_are_not_signed(client, plan, placement, needed):
    action = Action({"plan": plan, "placement": placement}, [{"changed": False}])
    action.go()
    assert set(manifest.parse(action.calls[0]["plan"]).by_path()) == needed


@pytest.mark.parametrize("arguments", [{"phase": "budget"}, {}])
def test_nothing_is_signed_where_nothing_moves(client, plan, arguments):
    action = Action({"plan": plan, "placement": "shard", **arguments}, [{"changed": False}], not arguments)
    assert action.go() == {"changed": False} and action.texts == {}


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (SECOND, b"\xff" * 50, SECOND),
        ("config.json", b"{}", "config.json: expected crc64nvme"),
    ],
)
def test_an_object_that_is_not_what_it_should_be(client, plan, path, body, text):
    client.objects[path] = body + client.objects[path][len(body) :]
    result = Action({"plan": plan}).go()
    assert result["failed"] and text in result["msg"] and "Cure:" in result["msg"]


def test_an_object_that_was_replaced_since_it_was_planned(client, plan):
    client.etags[INDEX] = '"another"'
    result = Action({"plan": plan}).go()
    assert result["failed"] and f"{INDEX} was replaced since it was planned. Cure: run again" in result["msg"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rank": 3}, "the rank is 3, expected 0 to 2"),
        ({"tensor_parallel": 7, "rank": 1}, "would own no rows"),
        ({"verify_share": 1.5}, "option verify_share is 1.5, allowed are 0 to 1"),
        ({"bucket": ""}, "option bucket is missing"),
    ],
)
def test_what_cannot_be_is_said(client, plan, arguments, text):
    result = Action({"plan": plan, **arguments}).go()
    assert result["failed"] and text in result["msg"]


def test_a_plan_without_the_index_is_named(client, plan):
    files = [file for file in manifest.parse(plan).files if file.path != INDEX]
    result = Action({"plan": manifest.make("tiny", "", files).to_dict()}).go()
    assert f"the checkpoint has no {INDEX}; name it in files (checkpoint_files)" in result["msg"]
