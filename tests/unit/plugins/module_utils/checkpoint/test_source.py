# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import source
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.source import Source, SourceError

PEER = Source("http://198.51.100.1:8000/a", "peer", 30)


def test_they_survive_the_way():
    wanted = {"a": (PEER, Source("https://s3/a?sig=x")), "b": ()}
    assert source.parse(source.render(wanted)) == wanted


def test_peers_come_first():
    found = source.with_peers({"a": "https://s3/a", "b": "https://s3/b"}, {"a": [PEER]})
    assert found == {"a": (PEER, Source("https://s3/a")), "b": (Source("https://s3/b"),)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"a": 1}',
        '{"a": [{"url": "file:///secret"}]}',
        '{"a": [{"kind": "s3"}]}',
        '{"a": [{"url": "http://secret", "kind": "x"}]}',
        '{"a": [{"url": "http://secret", "patience_s": "secret"}]}',
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_it(text):
    with pytest.raises(SourceError) as caught:
        source.parse(text)
    assert "secret" not in str(caught.value)


def test_an_address_is_not_in_the_repr():
    assert "sig" not in repr(Source("https://s3/a?sig=x"))
    assert Source("https://s3:9000/a").place == "s3:9000"


def test_addresses_that_nobody_read_are_removed_by_a_later_run(tmp_path):
    """Not those that another task is about to read, its own, and files that are not ours."""
    times = {"ansible-tmp-1": 100, "ansible-tmp-2": 500, "ansible-tmp-own": 100, "other": 100}
    for directory, seconds in times.items():
        (tmp_path / directory).mkdir()
        for name in (source.FILE, "another"):
            (tmp_path / directory / name).touch()
            os.utime(tmp_path / directory / name, (seconds, seconds))
    source.forget_unread(tmp_path / "ansible-tmp-own", 701)
    left = {path.parent.name for path in tmp_path.glob(f"*/{source.FILE}")}
    assert left == {"ansible-tmp-2", "ansible-tmp-own", "other"}
    assert len(list(tmp_path.glob("*/another"))) == 4
