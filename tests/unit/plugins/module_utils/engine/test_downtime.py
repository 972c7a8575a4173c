# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.downtime import Watch, text
from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import Reply


@pytest.mark.parametrize(
    ("looks", "seconds", "over", "said"),
    [
        ([(1.0, True), (2.0, True), (3.0, False), (4.0, False), (7.5, True)], 5.5, True, "out of service for 5.5 s"),
        ([(1.0, True), (2.0, False), (3.0, True), (4.0, False), (9.0, True)], 2.0, True, "out of service for 2.0 s"),
        ([(1.0, False), (2.0, True)], None, True, "in service; it was not when the watch began"),
        ([(1.0, True), (2.0, False)], None, False, "out of service still, 60 s after the watch began"),
        ([(1.0, True)], None, False, "never out of service"),
    ],
)
def test_from_the_last_healthy_answer_to_the_next(looks, seconds, over, said):
    watch = Watch()
    for at, healthy in looks:
        watch = watch.seen(at, healthy)
    assert (watch.seconds, watch.over, text(watch, 60.0)) == (seconds, over, said)


def test_the_watch_ends_when_the_api_is_back_or_time_is_over(monkeypatch):
    answers = iter([200, 0, 503, 200])
    now = [0.0]
    monkeypatch.setattr(machine, "ask", lambda _url, _path: Reply(next(answers, 200)))
    monkeypatch.setattr(machine.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(machine.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    watch, waited = machine.watch("http://x", 60)
    assert watch.seconds == pytest.approx(0.3) and waited == pytest.approx(0.3)
    watch, waited = machine.watch("http://x", 5)
    assert watch.seconds is None and waited >= 5
