from __future__ import annotations

import json

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.record import merged
from ansible_collections.gb10.ring.plugins.module_utils.memory.settings import MemoryPlan
from ansible_collections.gb10.ring.plugins.module_utils.memory.swap import Swap, UnitFile
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change

PLANNED = MemoryPlan(
    settings=(Change("vm.swappiness", "60", "10"),),
    files=(
        Change("/etc/sysctl.d/90-gb10-ring.conf", "", "# Managed by gb10.ring\n"),
        Change("/etc/tmpfiles.d/90-gb10-ring.conf", "mine\n", "# Managed by gb10.ring\n"),
    ),
    mask=(
        UnitFile("a.swap", "/etc/systemd/system/a.swap", "[Swap]\n", own=True),
        UnitFile("b.swap", "/usr/lib/systemd/system/b.swap", "[Swap]\n", own=False),
    ),
    fstab=Change("/etc/fstab", "/swap.img none swap sw 0 0\n", "# gb10.ring: /swap.img none swap sw 0 0\n"),
    swapoff=(Swap("/swap.img", "file", 10, 0),),
)


def test_everything_replaced_is_recorded():
    assert json.loads(merged("", PLANNED)) == {
        "sysctls": {"vm.swappiness": "60"},
        "files": {"/etc/sysctl.d/90-gb10-ring.conf": None, "/etc/tmpfiles.d/90-gb10-ring.conf": "mine\n"},
        "units": {"a.swap": "/etc/systemd/system/a.swap.gb10-ring", "b.swap": None},
        "fstab": ["/swap.img none swap sw 0 0"],
        "swaps": ["/swap.img"],
    }


def test_the_first_recorded_value_stays():
    first = merged("", PLANNED)
    later = MemoryPlan(settings=(Change("vm.swappiness", "10", "5"), Change("vm.dirty_ratio", "20", "5")))
    record = json.loads(merged(first, later))
    assert record["sysctls"] == {"vm.swappiness": "60", "vm.dirty_ratio": "20"}
    assert merged(first, PLANNED) == first


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_a_foreign_record_is_never_overwritten(text):
    with pytest.raises(ValueError, match="move it away"):
        merged(text, PLANNED)
