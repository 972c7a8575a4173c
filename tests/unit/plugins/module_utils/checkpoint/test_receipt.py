# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import receipt
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.receipt import Derived, Entry, Receipt, Stat

FULL = Receipt(
    name="tiny",
    revision="r1",
    created="2026-11-29T22:00:00Z",
    files=(Entry("a", 10, "md5:0", 111), Entry("config.json", 20, "md5:1", 222)),
    derived={"config.json": Derived("tp3", "md5:1", "sha256:2", 25, 333)},
)


def test_a_receipt_survives_the_disk_without_what_stands_in_for_its_files():
    assert receipt.parse(receipt.render(FULL), "r1.json") == replace(FULL, derived={})
    assert "derived" not in receipt.render(FULL)


def test_a_derived_file_is_expected_as_it_is_on_disk():
    assert FULL.on_disk()["config.json"] == Entry("config.json", 25, "sha256:2", 333)
    assert FULL.on_disk()["a"] == FULL.files[0]
    assert FULL.bytes == 30
    assert ("config.json", 20, "md5:1") in FULL.contents()


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"a": Stat(10, 111), "config.json": Stat(25, 333), "extra": Stat(1, 1)}, {}),
        ({"a": Stat(10, 111)}, {"config.json": "missing"}),
        ({"a": Stat(9, 111), "config.json": Stat(25, 333)}, {"a": "9 bytes instead of 10"}),
        ({"a": Stat(10, 112), "config.json": Stat(25, 333)}, {"a": "modified since it was verified"}),
        ({"a": Stat(10, 111), "config.json": Stat(20, 222)}, {"config.json": "20 bytes instead of 25"}),
    ],
)
def test_wrong_files(found, wrong):
    assert receipt.wrong_files(FULL, found) == wrong


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"name": "n", "revision": "r", "created": "c", "files": [{}]}'])
def test_a_receipt_that_cannot_be_read_is_named(text):
    with pytest.raises(receipt.ReceiptError, match=r"/x/r1\.json is not a receipt of gb10\.ring"):
        receipt.parse(text, "/x/r1.json")


@pytest.mark.parametrize(
    ("stat", "matches"), [(Stat(10, 111), True), (Stat(10, 112), False), (Stat(11, 111), False), (None, False)]
)
def test_entry_matches(stat, matches):
    assert Entry("a", 10, "md5:0", 111).matches(stat) is matches
