# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.engine import machine
from ansible_collections.gb10.ring.plugins.module_utils.engine.ready import Reply
from ansible_collections.gb10.ring.plugins.modules import engine_downtime


@pytest.mark.parametrize(
    ("answers", "measured", "recovered", "said"),
    [
        ([200, 0, 200], True, True, "out of service for 0."),
        ([0, 200], False, True, "in service"),
        ([200, 0], False, False, "still"),
    ],
)
def test_what_it_says(capsys, monkeypatch, answers, measured, recovered, said):  # noqa: PLR0917 - columns of the table
    left = list(answers)
    monkeypatch.setattr(machine, "ask", lambda _url, _path: Reply(left.pop(0) if len(left) > 1 else left[0]))
    with patch_module_args({"url": "http://x", "timeout_s": 1}), pytest.raises(SystemExit):
        engine_downtime.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["downtime_s"] is not None, result["recovered"], result["changed"]) == (measured, recovered, False)
    assert said in result["msg"]
