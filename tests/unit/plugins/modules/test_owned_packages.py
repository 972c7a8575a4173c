# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.modules import owned_packages

NEEDS = {"perftest": ("libibverbs1", "pci.ids"), "opensm": ("libibverbs1",)}


class Debian:
    """apt and dpkg over a set of packages. state: of each that is known."""

    def __init__(self) -> None:
        self.state = {"libc6": "installed", "pci.ids": "config-files"}
        self.done: list[str] = []
        self.lists = True

    def run(self, argv, timeout=60.0, check=True, env=None, stdin=None):
        said, rc = "", 0
        if argv[0] == "dpkg-query":
            said = "".join(f"{name} amd64 {state}\n" for name, state in self.state.items())
        elif argv[:2] == ["dpkg", "--print-architecture"]:
            said = "amd64\n"
        elif argv[:2] == ["dpkg", "--purge"]:
            self.done.append(" ".join(argv))
            for name in argv[2:]:
                del self.state[name]
        else:
            said, rc = self.apt([word for word in argv[6:] if not word.startswith("--")], "--simulate" in argv)
        if check and rc:
            raise HostError(Completed(tuple(argv), rc, said, "E: no such package").message())
        return Completed(tuple(argv), rc, said, "")

    def apt(self, words, simulate):
        verb, names = words[0], words[1:]
        if verb == "install":
            if not self.lists:
                return "", 100
            names = [one for name in names for one in (*NEEDS.get(name, ()), name)]
            new = [name for name in dict.fromkeys(names) if self.state.get(name) != "installed"]
            if not simulate:
                self.state.update(dict.fromkeys(new, "installed"))
            return "".join(f"Inst {name} (1 Debian:12 [amd64])\n" for name in new), 0
        gone = [name for name in self.state if name in names or set(NEEDS.get(name, ())) & set(names)]
        if not simulate:
            self.done.append(" ".join(["remove", *names]))
            self.state.update(dict.fromkeys(gone, "config-files"))
        return "".join(f"Remv {name} [1]\n" for name in gone), 0


@pytest.fixture
def debian(monkeypatch):
    machine = Debian()
    monkeypatch.setattr(owned_packages, "run", machine.run)
    return machine


@pytest.fixture
def call(tmp_path, capsys):
    def once(check=False, **options):
        record = str(tmp_path / "state/packages.json")
        with (
            patch_module_args({"record_path": record, "_ansible_check_mode": check, **options}),
            pytest.raises(SystemExit),
        ):
            owned_packages.main()
        return json.loads(capsys.readouterr().out)

    return once


def test_what_comes_is_recorded_before_it_comes_and_goes_again(debian, call, tmp_path):
    first, record = dict(debian.state), tmp_path / "state/packages.json"
    dry = call(check=True, names=["perftest"])
    assert (dry["changed"], dry["packages"], record.exists()) == (True, ["libibverbs1", "pci.ids", "perftest"], False)
    assert call(names=["perftest"])["diff"] == dry["diff"]
    assert call(names=["perftest"])["changed"] is False
    debian.apt(["install", "perftest"], simulate=False)
    assert call(names=["perftest"])["changed"] is False
    dry = call(check=True, state="absent")
    assert (dry["changed"], dry["packages"], debian.done) == (True, ["libibverbs1", "pci.ids", "perftest"], [])
    assert call(state="absent")["diff"] == dry["diff"]
    assert debian.state == first  # pci.ids has its configuration of before
    assert debian.done == ["remove libibverbs1 pci.ids perftest", "dpkg --purge libibverbs1 perftest"]
    assert not record.exists()
    assert call(state="absent")["changed"] is False


def test_what_was_there_before_is_never_on_record(debian, call, tmp_path):
    assert call(names=["libc6"]) == call(names=["libc6"])
    assert not (tmp_path / "state").exists()


def test_nothing_goes_along(debian, call, tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr(owned_packages.AnsibleModule, "warn", lambda self, text: warned.append(text))
    call(names=["perftest"])
    debian.apt(["install", "perftest", "opensm"], simulate=False)
    result = call(state="absent")
    assert (result["changed"], result["packages"], debian.done) == (False, [], [])
    assert warned == result["notes"] and "apt would remove opensm too" in warned[0]
    debian.state["opensm"] = "config-files"
    monkeypatch.setitem(NEEDS, "opensm", ())
    assert call(state="absent")["packages"] == ["libibverbs1", "pci.ids", "perftest"]


def test_a_dry_run_without_package_lists_records_nothing_and_a_run_says_why(debian, call):
    debian.lists = False
    assert call(check=True, names=["perftest"])["changed"] is False
    assert "exit 100: E: no such package" in call(names=["perftest"])["msg"]
