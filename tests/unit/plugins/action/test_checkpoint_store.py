# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkpoint's plugins and modules together, against a real object store (SeaweedFS) on loopback."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.tests.unit.fixtures import weed

CONFIG = (Path(__file__).parents[2] / "fixtures/checkpoint/config-exl3.json").read_bytes()
RANDOM = random.Random()
#: The second one is uploaded in parts, so its ETag is no MD5.
FILES = {"config.json": CONFIG, "model-1.safetensors": RANDOM.randbytes(12 << 20), "sub/notes": b"x" * 100}
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gb10.ring.checkpoint_plan: {plan}
      register: planned
    - gb10.ring.checkpoint_stage: {stage}
      register: staged
    - gb10.ring.checkpoint_config:
        root: '{root}'
        name: tiny
        revision: '{{{{ planned.plan.revision }}}}'
        planned: '{{{{ planned.config }}}}'
        tensor_parallel: 3
      register: config
    - gb10.ring.checkpoint_activate: {{root: '{root}', name: tiny, revision: '{{{{ planned.plan.revision }}}}'}}
      register: activated
    - gb10.ring.checkpoint_info: {{root: '{root}', name: tiny, node: n1, verify: full, tensor_parallel: 3}}
      register: looked
    - ansible.builtin.copy:
        dest: '{root}/result.json'
        content: '{{{{ {{"stage": staged, "config": config, "activate": activated, "info": looked}} | to_json }}}}'
        mode: '0600'
      check_mode: false
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    with weed.serving(tmp_path_factory.mktemp("weed"), FILES) as address:
        yield address


def store_options(endpoint, who, prefix="org/tiny"):
    key, secret = weed.KEYS[who]
    return {"endpoint_url": endpoint, "bucket": "models", "prefix": prefix, "access_key": key, "secret_key": secret}


def play(tmp_path, endpoint, *flags, **more):
    store = store_options(endpoint, "reader")
    stage = {
        **store,
        "plan": "{{ planned.plan }}",
        "root": str(tmp_path),
        "node": "n1",
        "disk_ceiling_percent": 100,
        **more,
    }
    return run(
        tmp_path,
        PLAY.format(plan=json.dumps({**store, "tensor_parallel": 3}), stage=json.dumps(stage), root=tmp_path),
        *flags,
    )


def run(tmp_path, text, *flags):
    """What the play left in result.json."""
    book = tmp_path / "play.yml"
    book.write_text(text)
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "n1,", "-c", "local", "-vvv", *flags]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", str(book)]
    places = {"ANSIBLE_LOCAL_TEMP": "tmp", "ANSIBLE_REMOTE_TEMP": "remote", "ANSIBLE_ASYNC_DIR": "async"}
    environment = {
        **os.environ,
        **{name: str(tmp_path / place) for name, place in places.items()},
        "ANSIBLE_NOCOLOR": "1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    # Neither the secret nor a signed address may be seen, at any verbosity.
    for hidden in ("very-secret", "X-Amz-Signature"):
        assert hidden not in done.stdout + done.stderr
    return json.loads((tmp_path / "result.json").read_text())


def test_from_bucket_to_verified_revision_in_four_steps(endpoint, tmp_path):
    results = [play(tmp_path, endpoint, *flags) for flags in (["--check", "--diff"], [], ["--check"], [])]
    assert [result["stage"]["changed"] for result in results] == [True, True, False, False]
    assert [result["activate"]["changed"] for result in results] == [True, True, False, False]
    assert results[0]["stage"]["diff"] == results[1]["stage"]["diff"]
    assert [result["config"]["changed"] for result in results] == [True, True, False, False]
    assert [result["config"]["rule"] for result in results] == ["tp3"] * 4
    assert results[0]["config"]["diff"] == results[1]["config"]["diff"]
    assert all(check["ok"] for check in results[3]["info"]["checks"] if check["severity"] == "error")
    current = tmp_path / "tiny/current"
    found = {path.relative_to(current).as_posix(): path.read_bytes() for path in current.rglob("*") if path.is_file()}
    assert set(found) == set(FILES)
    assert {path: body for path, body in found.items() if path != "config.json"} == {
        path: body for path, body in FILES.items() if path != "config.json"
    }
    assert json.loads(found["config.json"])["text_config"]["o_groups"] == 9
    # The play is the one file that the test itself wrote the secrets to.
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path.name != "play.yml"):
        body = path.read_bytes()
        assert b"very-secret" not in body and b"X-Amz" not in body, path


SECRETS = [text.encode() for key, secret in weed.KEYS.values() for text in (secret, f"X-Amz-Credential={key}")]


class Watch:
    """Looks all the time for secrets where another user of the machine could: command lines, files that others may read.

    Signed addresses name their key, and so are told from those of what else runs on the machine.
    """

    def __init__(self, directory):
        self.directory, self.found, self.looks = directory, set(), 0
        self.sources_seen = False
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_exception):
        self.end.set()
        self.thread.join()

    def run(self):
        while not self.end.wait(0.01):
            self.looks += 1
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                self.look(line)
            self.sources_seen = self.sources_seen or any(self.directory.rglob("gb10-ring-sources.json"))
            for path in self.readable(self.directory):
                self.look(path)

    def readable(self, directory):
        """Files below that have the bits for others on themselves and on all directories above."""
        with contextlib.suppress(OSError):
            for entry in os.scandir(directory):
                mode = entry.stat(follow_symlinks=False).st_mode
                if entry.is_dir(follow_symlinks=False) and mode & 0o001:
                    yield from self.readable(entry.path)
                elif entry.is_file(follow_symlinks=False) and mode & 0o004 and entry.name != "play.yml":
                    yield Path(entry.path)

    def look(self, path):
        with contextlib.suppress(OSError):
            if path.stat().st_size < 1 << 20 and any(secret in path.read_bytes() for secret in SECRETS):
                self.found.add(str(path))


def test_the_watch_sees_a_signed_address_that_others_may_read(tmp_path):
    signed = tmp_path / "signed"
    signed.write_text(f"http://s3/models/x?X-Amz-Credential={weed.KEYS['reader'][0]}%2F20261130")
    (tmp_path / "other").write_text("http://s3/models/x?X-Amz-Credential=other%2F20261130")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    with Watch(tmp_path) as watch:
        time.sleep(0.5)
    assert watch.found == {str(signed)}


def left_files(directory):
    places = [directory / place for place in ("remote", "async", "tmp")]
    return [path for place in places for path in place.rglob("*") if path.is_file()]


def test_nothing_secret_is_to_be_seen_while_it_runs_by_itself(endpoint, tmp_path):
    with Watch(tmp_path) as watch:
        result = play(tmp_path, endpoint, progress="on", rate_limit=8_000_000)
    assert watch.found == set() and watch.looks > 50
    # It was there to be seen, in a directory of the task's own.
    assert watch.sources_seen
    assert result["stage"]["moved"]["s3_bytes"] == sum(len(body) for body in FILES.values())
    # Ansible's own wrapper of an async task looks every 5 s whether it has ended, and then removes the task's directory.
    deadline = time.monotonic() + 20
    while (left := left_files(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []


PUBLISH = """
- hosts: all
  gather_facts: false
  tasks:
    - gb10.ring.checkpoint_publish: {publish}
      register: published
    - gb10.ring.checkpoint_plan: {store}
      register: planned
      when: not ansible_check_mode
    - ansible.builtin.copy:
        dest: '{root}/result.json'
        content: '{{{{ {{"publish": published, "plan": planned.plan | default({{}})}} | to_json }}}}'
        mode: '0600'
      check_mode: false
"""


def hugging_face_cache(directory, files):
    """A repository as huggingface_hub lays it out: blobs by digest, snapshots of links to them."""
    snapshot = directory / "snapshots/0123abc"
    (directory / "blobs").mkdir(parents=True)
    for path, body in files.items():
        blob = directory / "blobs" / hashlib.sha256(body).hexdigest()
        blob.write_bytes(body)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))


def test_what_is_published_is_planned_by_its_manifest(endpoint, tmp_path):
    files = {**FILES, "model-2.safetensors": RANDOM.randbytes(40 << 20)}
    hugging_face_cache(tmp_path / "models--org--pub", files)
    publish = {
        **store_options(endpoint, "admin", "org/pub"),
        "source": str(tmp_path / "models--org--pub"),
        "upload_part_mib": 16,
    }
    store = store_options(endpoint, "reader", "org/pub")
    text = PUBLISH.format(publish=json.dumps(publish), store=json.dumps(store), root=tmp_path)
    results = [run(tmp_path, text, *flags) for flags in (["--check", "--diff"], [], ["--check"], [])]
    assert [result["publish"]["changed"] for result in results] == [True, True, False, False]
    assert results[0]["publish"]["diff"] == results[1]["publish"]["diff"]
    planned = results[1]["plan"]
    assert planned["revision"] == results[1]["publish"]["published"]["revision"]
    assert {file["path"]: (file["size"], file["digest_source"]) for file in planned["files"]} == {
        path: (len(body), "checkpoint-manifest.json") for path, body in files.items()
    }
    by_path = {file["path"]: file for file in planned["files"]}
    assert len(by_path["model-2.safetensors"]["chunks"]) == 3 * 16
    # The store's own checksum of the whole object agrees, so a plan without the manifest has the same name.
    head = weed.client(endpoint).head_object(Bucket="models", Key="org/pub/model-2.safetensors", ChecksumMode="ENABLED")
    crc = base64.b64decode(head["ChecksumCRC64NVME"]).hex()
    assert by_path["model-2.safetensors"]["digest"] == f"crc64nvme:{crc}" and head["ETag"].endswith('-3"')
