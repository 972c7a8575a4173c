# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role checkpoint with Engram rows, on nodes that are folders of this machine, against a real object store (SeaweedFS)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.tests.lab import engram_reader
from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, weed
from ansible_collections.gb10.ring.tests.unit.fixtures.engram_shards import SECOND, THIRD

PLAY = """
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.include_role: {name: gb10.ring.checkpoint, tasks_from: "{{ task_file | default('main') }}"}
    - ansible.builtin.import_role: {name: gb10.ring.checkpoint, tasks_from: verify}
      when: not ansible_check_mode
    - ansible.builtin.copy:
        dest: '{{ place }}/{{ inventory_hostname }}.json'
        content: '{{ {"rows": checkpoint_engram_result | default({}), "checks": checkpoint_checks | default({})} | to_json }}'
        mode: '0600'
      check_mode: false
      changed_when: false
"""


@pytest.fixture(scope="module")
def small():
    return engram_shards.small("nvfp4", vocabulary=40)


@pytest.fixture(scope="module")
def endpoint(small, tmp_path_factory):
    with weed.serving(tmp_path_factory.mktemp("weed"), small.files) as address:
        yield address


@pytest.fixture
def whole(small, tmp_path):
    directory = tmp_path / "whole"
    directory.mkdir()
    for path, body in small.files.items():
        (directory / path).write_bytes(body)
    return directory


class Site:
    """Nodes n0, n1, ... with a root of checkpoints each."""

    def __init__(self, place, endpoint):
        self.place, self.endpoint = place, endpoint

    def run(self, count, *flags, **variables):
        """What each node left, and the counts of changed tasks."""
        (self.place / "play.yml").write_text(PLAY)
        hosts = {
            f"n{rank}": {"ring_rank": rank, "ring_size": count, "checkpoint_root": str(self.place / f"n{rank}")}
            for rank in range(count)
        }
        (self.place / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
        key, secret = weed.KEYS["reader"]
        given = {
            "place": str(self.place),
            "checkpoint_endpoint_url": self.endpoint,
            "checkpoint_bucket": "models",
            "checkpoint_prefix": "org/tiny",
            "checkpoint_s3_access_key": key,
            "checkpoint_s3_secret_key": secret,
            "checkpoint_disk_ceiling_percent": 100,
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            **variables,
        }
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(self.place / "hosts.yml"), "-vv"]
        environment = {
            **os.environ,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_INVENTORY_ENABLED": "yaml",
            "ANSIBLE_LOCAL_TEMP": str(self.place / "tmp"),
        }
        (self.place / "given.json").write_text(json.dumps(given))
        environment |= {"ANSIBLE_REMOTE_TEMP": str(self.place / "remote")}
        done = subprocess.run(
            [*command, "-e", f"@{self.place / 'given.json'}", *flags, str(self.place / "play.yml")],
            capture_output=True,
            text=True,
            env=environment,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
        assert secret not in done.stdout and "X-Amz-Signature" not in done.stdout + done.stderr
        changed = [int(number) for number in re.findall(r"changed=(\d+)", done.stdout)]
        return [json.loads((self.place / f"n{rank}.json").read_text()) for rank in range(count)], changed

    def directory(self, rank, placement):
        base = self.place / f"n{rank}" / "tiny"
        return base / "engram" if placement == "directory" else base / "current"


def checks_of(found):
    return {(check["node"], check["id"]): check for result in found for check in result["checks"]["checks"]}


def test_from_bucket_to_rows_in_the_revision_and_then_beside_it(endpoint, small, whole, tmp_path):
    site, wanted = Site(tmp_path, endpoint), {"checkpoint_engram_rule": "vllm", "checkpoint_engram_placement": "shard"}
    _found, planned = site.run(2, "--check", "--diff", **wanted)
    assert all(planned) and not list(tmp_path.glob("n?/tiny"))
    found, changed = site.run(2, **wanted)
    assert changed == planned
    checks = checks_of(found)
    assert {check["id"] for check in checks.values()} >= {
        *("checkpoint.engram", "checkpoint.engram_tiles", "checkpoint.same_revision")
    }
    assert all(check["ok"] for check in checks.values() if check["severity"] == "error"), checks
    for rank in range(2):
        directory = site.directory(rank, "shard")
        assert engram_reader.problems(directory, whole) == []
        told = {"DSV41_ENGRAM_DISK": "1", "DSV41_ENGRAM_DIR": str(directory.resolve())}
        assert found[rank]["rows"]["environment"] == told

    wanted["checkpoint_engram_placement"] = "directory"
    found, _changed = site.run(2, **wanted)
    for rank in range(2):
        assert engram_reader.problems(site.directory(rank, "directory"), whole) == []
        # The revision has whole shards again, and the rows came from there.
        current = site.directory(rank, "shard")
        assert all((current / path).read_bytes() == small.files[path] for path in (SECOND, THIRD))
        assert not (current / "engram-local.json").exists()
        moved = found[rank]["rows"]["moved"]
        assert moved["disk_bytes"] > 0 and moved["s3_bytes"] < moved["disk_bytes"]
    assert site.run(2, **wanted)[1] == [0, 0]


def test_a_re_staging_without_anything_to_stage_ends_a_deletion_that_did_not(endpoint, tmp_path):
    site = Site(tmp_path, endpoint)
    site.run(2)
    trash = tmp_path / "n1" / "tiny" / "staging" / ".pruned-old"
    trash.mkdir()
    (trash / "shard").write_bytes(b"x" * 8192)
    _found, changed = site.run(2, task_file="restage")
    assert changed == [0, 1] and not trash.exists()
    assert site.run(2, task_file="restage")[1] == [0, 0]


def test_nodes_with_different_revisions_active(endpoint, tmp_path):
    """As a run that was killed between two activations leaves them."""
    site = Site(tmp_path, endpoint)
    site.run(2)
    base = tmp_path / "n1" / "tiny"
    (receipt,) = (base / "receipts").iterdir()
    for place in ("receipts", "manifests"):
        text = (base / place / receipt.name).read_text().replace(receipt.stem, "other")
        (base / place / "other.json").write_text(text)
    shutil.copytree(base / "revisions" / receipt.stem, base / "revisions" / "other")
    (base / "switch.json").write_text(json.dumps({"active": "other", "previous": "", "target": ""}))
    (base / "current").unlink()
    (base / "current").symlink_to("revisions/other")
    found, _changed = site.run(2, task_file="verify")
    checks = checks_of(found)
    assert [name for name, check in checks.items() if not check["ok"]] == [("n0", "checkpoint.same_revision")]
    assert checks["n0", "checkpoint.same_revision"]["found"] == f"revision {receipt.stem} on n0; revision other on n1"
