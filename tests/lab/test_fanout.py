"""Nodes that give each other files: what leaves the object store, what neighbours that fail or lie cost, what is left afterwards.

Runs inside the controller namespace of a freshly booted lab (`make staging`, `make staging-full`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import re
import threading
import time

import pytest

from fanout_run import (
    BASE,
    PORT,
    ROOT,
    STAGE,
    UNIT,
    all_equal,
    contents,
    forget,
    nothing_is_left,
    run,
    size,
)
from site_run import ctl, on

#: Slow enough to do something to a node while it gives files away.
SLOWLY = {"checkpoint_rate_limit": 8 << 20}


@pytest.fixture(scope="module")
def expected():
    """Contents and size, from a staging without other nodes' help, after which nothing of it is left."""
    forget()
    code, output, sent = run("--tags", "preflight,fabric,checkpoint")
    assert code == 0, output
    found = contents()
    assert len(set(found.values())) == 1
    total = size()
    forget()
    return found["spark1"], total, sent


#: Each file that a node finishes gets another byte behind its back, at once, before neighbours have it; size and time as they were.
CHANGE = f"""
seen=' '
while [ -d {ROOT}/staging ] && ls {ROOT}/staging/ | grep -q .; do
  for f in $(find {ROOT}/staging -name '*.safetensors' -size +200k); do
    case "$seen" in *" $f "*) continue;; esac
    seen="$seen$f "
    touch -r $f /tmp/was
    printf X | dd of=$f bs=1 seek=100000 conv=notrunc 2>/dev/null && touch -r /tmp/was $f && echo changed $f
  done
  sleep 0.02
done
"""


class Meanwhile:
    """Does something to spark2 as soon as it has finished files and the server runs. The condition is a shell command."""

    def __init__(self, condition, action):
        self.condition, self.action, self.said = condition, action, None
        self.thread = threading.Thread(target=self.wait)

    def wait(self):
        until = time.monotonic() + 200
        while time.monotonic() < until and self.said is None:
            if on("spark2", f"systemctl is-active -q {UNIT} && {self.condition} && echo yes || true") == "yes":
                self.said = on("spark2", self.action)
            time.sleep(0.3)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.thread.join()


def test_without_it_every_node_takes_everything_from_the_store(expected):
    _contents, total, sent = expected
    assert 3.0 * total <= sent <= 3.06 * total


def test_every_byte_leaves_the_store_once(expected):
    wanted, total, _sent = expected
    code, output, sent = run(*STAGE, "-v", checkpoint_fanout=True)
    assert code == 0, output
    assert total <= sent <= 1.02 * total
    assert all_equal(wanted) and nothing_is_left()
    assert "/enp1s0f" not in output and f":{PORT}/" not in output


@pytest.mark.full
def test_a_second_run_starts_no_server_and_changes_nothing(expected):
    assert run(*STAGE, checkpoint_fanout=True)[0] == 0
    code, output, sent = run(*STAGE, checkpoint_fanout=True)
    assert code == 0 and set(re.findall(r"changed=(\d+)", output)) == {"0"}, output
    assert sent < 0.01 * expected[1] and nothing_is_left()


@pytest.mark.full
def test_a_node_that_has_nothing_takes_all_from_its_neighbours(expected):
    wanted, total, _sent = expected
    on("spark3", f"rm -rf {BASE}")
    code, output, sent = run(*STAGE, checkpoint_fanout=True)
    assert code == 0, output
    assert sent < 0.02 * total and all_equal(wanted) and nothing_is_left()


@pytest.mark.full
def test_while_it_runs_it_listens_on_fabric_addresses_and_shows_no_token(expected):
    forget()
    look = f"ss -Hltn 'sport = :{PORT}' | awk '{{print $4}}' | sort; tr '\\0' ' ' </proc/$(systemctl show -p MainPID --value {UNIT})/cmdline; "
    look += f"ls -a /run/gb10-ring-fanout; systemctl show {UNIT} | grep -ci token || true"
    with Meanwhile("true", look) as seen:
        code, output, _sent = run(*STAGE, checkpoint_fanout=True, **SLOWLY)
    assert code == 0, output
    addresses = re.findall(r"^(198\.\d+\.\d+\.\d+)(?:%\S+)?:7871$", seen.said, flags=re.MULTILINE)
    assert len(addresses) == 4 and all(address.startswith("198.19.") for address in addresses)
    assert "settings.json" not in seen.said.split("\n", 5)[-1] and seen.said.endswith("\n0")
    assert all_equal(expected[0]) and nothing_is_left()


@pytest.mark.full
def test_a_server_that_is_killed_costs_a_fallback(expected):
    wanted, total, _sent = expected
    forget()
    with Meanwhile(
        f'test $(grep -c \'"line": "file"\' {ROOT}/staging/*.journal) -ge 12',
        f"systemctl kill -s KILL {UNIT}; echo killed",
    ) as done:
        code, output, sent = run(*STAGE, checkpoint_fanout=True, **SLOWLY)
    assert code == 0, output
    assert done.said == "killed" and all_equal(wanted) and nothing_is_left()
    assert 1.02 * total < sent < 2.9 * total


@pytest.mark.full
def test_bytes_that_a_neighbour_changed_are_never_taken(expected):
    wanted, total, _sent = expected
    forget()
    with Meanwhile(f"ls {ROOT}/staging | grep -q .", CHANGE) as done:
        code, output, sent = run(*STAGE, checkpoint_fanout=True, **SLOWLY)
    assert code == 0, output
    assert "changed" in done.said
    found = contents()
    assert found["spark1"] == found["spark3"] == wanted != found["spark2"]
    assert sent > 1.02 * total and nothing_is_left()


@pytest.mark.full
def test_a_node_that_dies_takes_nobody_with_it(expected):
    """spark2 loses its power half-way; the others end whole, and so does it, by the next run."""
    forget()
    with Meanwhile(f'test $(grep -c \'"line": "file"\' {ROOT}/staging/*.journal) -ge 5', "echo now") as done:
        killer = threading.Thread(target=lambda: (wait_for(done), ctl("node", "kill", "spark2")))
        killer.start()
        code, _output, _sent = run(*STAGE, checkpoint_fanout=True, **SLOWLY)
        killer.join()
    assert code != 0
    ctl("node", "start", "spark2")
    code, output, _sent = run(*STAGE, checkpoint_fanout=True)
    assert code == 0, output
    assert all_equal(expected[0]) and nothing_is_left()


def wait_for(meanwhile):
    until = time.monotonic() + 200
    while meanwhile.said is None and time.monotonic() < until:
        time.sleep(0.1)
