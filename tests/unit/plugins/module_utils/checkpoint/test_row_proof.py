# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.parts import Done, Part
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.row_proof import Kept, completes, unproved
from ansible_collections.gb10.ring.tests.unit.fixtures.row_process import crc

WANTED = (Part(0, 10), Part(20, 10))
A, B, C = Done(Part(0, 10), 1), Done(Part(20, 5), 2), Done(Part(25, 5), 3)


@pytest.mark.parametrize(
    ("kept", "stored", "left"),
    [
        (Kept(), (A, B, C), WANTED),
        (Kept((A,), (), (A.part,)), (A, B, C), (Part(20, 10),)),
        (Kept((), (A, B), (A.part, B.part)), (A, B, C), (C.part,)),
        (Kept((A, B, C), (), WANTED), (A, B, C), ()),
        # kept, but not proved: a run before was killed
        (Kept((A, B, C)), (A, B, C), WANTED),
        # the part that was there before the machine went down was wrong, and came once more
        (Kept((), (A, B, C), WANTED), (A, Done(B.part, 9), C), (B.part,)),
    ],
)
def test_what_is_still_to_be_proved(kept, stored, left):
    assert unproved(WANTED, kept, stored, published=False) == left


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (Kept(), ()),
        (Kept((A, B), (), (A.part, B.part)), ()),
        # of a run that was killed before checksums were published
        (Kept((A,)), (A.part,)),
    ],
)
def test_published_checksums_prove_what_came_under_them(kept, left):
    assert unproved(WANTED, kept, (A, B, C), published=True) == left


@pytest.mark.parametrize(("change", "whole"), [(None, True), (0, False), (15, False), (29, False)])
def test_rows_and_the_rest_are_the_whole_object(change, whole):
    body = bytearray(range(30))
    digest = f"crc64nvme:{crc(body):016x}"
    if change is not None:
        body[change] ^= 1
    parts = [Done(part, crc(body[part.offset : part.end])) for part in (Part(0, 10), Part(10, 10), Part(20, 10))]
    assert completes(digest, (parts[0], parts[2]), (parts[1],)) == whole


def test_a_part_that_is_missing_completes_nothing():
    body = bytes(range(30))
    assert not completes(f"crc64nvme:{crc(body):016x}", [Done(Part(0, 10), crc(body[:10]))], [])
