# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import transient
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import peer_unit
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.manifest import File, ManifestError, make
from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError

PLAN = make("tiny", "", [File("a", 5, '"a"', "crc64nvme:" + "0" * 16), File("b", 5, '"b"', "etag:b")]).to_dict()
OPTIONS = {"plan": PLAN, "root": "/root", "listen": [{"address": "127.0.0.1", "netdev": "lo"}], "port": 7871}
OPTIONS |= {"token": "secret-token", "idle_s": 600, "max_s": 3600}


@pytest.fixture
def systemd(monkeypatch):
    """A systemd of one unit. refuse: it starts none."""

    class Systemd:
        calls, active, refuse = [], False, ""

        def run(self, argv, check=True, **_more):
            self.calls.append(argv)
            rc = 0
            if argv[0] == "systemd-run":
                if self.refuse:
                    raise HostError(self.refuse)
                self.active = True
            elif argv[:2] == ["systemctl", "is-active"]:
                rc = 0 if self.active else 3
            elif argv[:2] == ["systemctl", "stop"]:
                self.active = False
            return Completed(tuple(argv), rc, "cannot listen on 127.0.0.1" if argv[0] == "journalctl" else "", "")

    made = Systemd()
    made.calls = []
    monkeypatch.setattr(transient, "run", made.run)
    return made


def test_only_what_can_be_verified_is_given_away():
    assert peer_unit.settings(OPTIONS)["digests"] == {"a": "crc64nvme:" + "0" * 16}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"listen": [{"address": "127.0.0.1"}]}, "netdev"), ({"port": 80}, "1024 to 65535"), ({"idle_s": 0}, "idle_s")],
)
def test_wrong_options_are_named(wrong, said):
    with pytest.raises(ManifestError, match=said):
        peer_unit.settings({**OPTIONS, **wrong})


def test_the_server_runs_from_a_copy_that_needs_nothing_else(tmp_path, systemd):
    directory = tmp_path / "gb10-ring-fanout"
    peer_unit.program(directory).start(peer_unit.settings(OPTIONS), 3600)
    settings = directory / transient.SETTINGS
    assert settings.stat().st_mode & 0o777 == 0o600 and directory.stat().st_mode & 0o777 == 0o700
    assert json.loads(settings.read_text())["token"] == "secret-token"
    settings.write_text("{}")
    # -I: without this checkout and the virtual environment.
    program = f"import runpy, sys; sys.path.insert(0, {str(directory)!r}); sys.argv = ['x', {str(settings)!r}]; "
    program += f"runpy.run_module({peer_unit.peer_server.__name__!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert "KeyError: 'root'" in done.stderr


def test_the_token_is_in_no_argument(tmp_path, systemd):
    peer_unit.program(tmp_path / "gb10-ring-fanout").start(peer_unit.settings(OPTIONS), 3600)
    (argv,) = [argv for argv in systemd.calls if argv[0] == "systemd-run"]
    assert "secret-token" not in str(systemd.calls)
    assert {"--property=RuntimeMaxSec=3600", "--property=RuntimeDirectory=gb10-ring-fanout"} < set(argv)


def test_a_server_that_runs_is_replaced(tmp_path, systemd):
    for _time in range(2):
        peer_unit.program(tmp_path / "gb10-ring-fanout").start(peer_unit.settings(OPTIONS), 3600)
    words = [argv[0] if argv[0] == "systemd-run" else argv[1] for argv in systemd.calls]
    assert [word for word in words if word != "is-active"] == ["systemd-run", "stop", "systemd-run"]


def test_a_server_that_does_not_start_leaves_nothing_and_says_why(tmp_path, systemd):
    systemd.refuse = "systemd-run: exit 1"
    directory = tmp_path / "gb10-ring-fanout"
    with pytest.raises(HostError, match=r"exit 1; it said: cannot listen on 127\.0\.0\.1"):
        peer_unit.program(directory).start(peer_unit.settings(OPTIONS), 3600)
    assert not directory.exists()


def test_stop_removes_what_is_there_and_says_whether_there_was_anything(tmp_path, systemd):
    directory = tmp_path / "gb10-ring-fanout"
    peer_unit.program(directory).start(peer_unit.settings(OPTIONS), 3600)
    server = peer_unit.program(directory)
    assert server.present() and server.stop()
    assert not directory.exists() and not systemd.active
    assert not server.stop()
