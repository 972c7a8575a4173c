# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gb10.ring.plugins.action import checkpoint_plan
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, make
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

MANIFEST = make("tiny", "", [File("a", 5_000_000, '"a"', "md5:" + "0" * 32, "MD5SUMS")])
ARGUMENTS = {"bucket": "models", "prefix": "org/tiny", "access_key": "key", "secret_key": "very-secret"}


def run(**arguments):
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=True, diff=False, delegate_to=None, environment=None)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = checkpoint_plan.ActionModule(task, connection, SimpleNamespace(), None, None, None)
    return action.run(task_vars={})


def test_the_plan_is_returned_and_nothing_is_changed(monkeypatch):
    asked = []
    monkeypatch.setattr(checkpoint_plan.s3_plan, "plan", lambda _client, *rest: asked.append(rest) or MANIFEST)
    result = run(**ARGUMENTS, files=["a"], revision="v1")
    assert result["plan"] == MANIFEST.to_dict() and result["changed"] is False
    assert result["msg"] == f"tiny revision {MANIFEST.revision}: 1 file, 5.0 MB; checksums from MD5SUMS (1)"
    settings, wish = asked[0]
    assert (settings.prefix, settings.secret_key, wish.files, wish.revision) == (
        "org/tiny",
        "very-secret",
        ("a",),
        "v1",
    )
    assert "very-secret" not in str(result)


def test_a_failure_is_one_message(monkeypatch):
    def refuse(*_arguments):
        raise S3Error("the bucket does not exist")

    monkeypatch.setattr(checkpoint_plan.s3_plan, "plan", refuse)
    result = run(**ARGUMENTS)
    assert result["failed"] and result["msg"] == "the bucket does not exist"
    assert "very-secret" not in str(result)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "bucket"),
        ({"bucket": "b", "access_key": "k"}, "secret_key"),
        ({"bucket": "b", "addressing_style": "x"}, "addressing_style"),
        ({"bucket": "b", "checksum_sources": ["luck"]}, "checksum_sources"),
    ],
)
def test_options_are_checked(arguments, text):
    with pytest.raises(AnsibleError, match=text):
        run(**arguments)


def test_numbers_out_of_range_are_named():
    assert run(**ARGUMENTS, read_timeout_s=0)["msg"] == "option read_timeout_s is 0, allowed are 1 to 3600"


def test_sources_and_lists_are_handed_on(monkeypatch):
    asked = []
    monkeypatch.setattr(checkpoint_plan.s3_plan, "plan", lambda _client, *rest: asked.append(rest) or MANIFEST)
    run(**ARGUMENTS, checksum_sources=["object", "list"], digest_lists=["lists/mine"])
    assert (asked[0][1].sources, asked[0][1].lists) == (("object", "list"), ("lists/mine",))
