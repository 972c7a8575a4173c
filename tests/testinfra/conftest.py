"""Fixtures: which node is looked at, and what its fabric ports must show."""

from __future__ import annotations

import pytest

from expected import ENDS, End


@pytest.fixture
def node(host) -> str:
    return host.check_output("hostname")


@pytest.fixture
def ends(node) -> list[End]:
    return ENDS[node]
