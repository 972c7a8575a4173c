# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.tests.unit.fixtures import engram_shards, object_server
from ansible_collections.gb10.ring.tests.unit.fixtures.row_case import Case


@pytest.fixture(scope="module")
def layout(request):
    return getattr(request, "param", "official")


@pytest.fixture(scope="module")
def small(layout):
    return engram_shards.small(layout, vocabulary=40)


@pytest.fixture
def store(small):
    with object_server.serving(**small.files) as running:
        yield running


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """A directory with the whole files."""
    directory = tmp_path_factory.mktemp("whole")
    for path, body in small.files.items():
        (directory / path).write_bytes(body)
    return directory


@pytest.fixture
def case(capsys, store, small, whole, tmp_path):
    return Case(capsys, store, small, whole, tmp_path)
