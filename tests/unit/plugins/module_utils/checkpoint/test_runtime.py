# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
import zipfile

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import runtime
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError


@pytest.fixture
def without_awscrt(monkeypatch):
    """An interpreter that knows no awscrt, and that has forgotten this test afterwards."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("awscrt", "_awscrt")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])


def wheel(path, body="def crc64nvme(data, previous=0):\n    return previous + len(data)\n"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("awscrt/__init__.py", "")
        archive.writestr("awscrt/checksums.py", body)
    return str(path)


def test_a_wheel_becomes_importable(tmp_path, without_awscrt):
    target = tmp_path / "lib/python"
    assert runtime.load_crc64(str(target)) is None
    runtime.install_wheel(wheel(tmp_path / "a.whl"), str(target))
    crc = runtime.load_crc64(str(target))
    assert crc(b"abc", 4) == 7
    assert [path.name for path in target.parent.iterdir()] == ["python"]


def test_an_old_unpacked_version_is_replaced_whole(tmp_path, without_awscrt):
    target = tmp_path / "python"
    target.mkdir()
    (target / "stale.py").write_text("")
    runtime.install_wheel(wheel(tmp_path / "a.whl"), str(target))
    assert sorted(path.name for path in target.iterdir()) == ["awscrt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl", "python"]


@pytest.mark.parametrize(
    "body", ["def crc32(data, previous=0):\n    return 0\n", "raise ImportError('wrong machine')\n"]
)
def test_a_version_that_is_too_old_or_foreign_is_none(tmp_path, without_awscrt, body):
    runtime.install_wheel(wheel(tmp_path / "a.whl", body), str(tmp_path / "python"))
    assert runtime.load_crc64(str(tmp_path / "python")) is None


def test_a_broken_wheel_leaves_what_was_there(tmp_path):
    target = tmp_path / "python"
    target.mkdir()
    (target / "mine.py").write_text("")
    broken = tmp_path / "a.whl"
    broken.write_bytes(b"not a zip file")
    with pytest.raises(HostError, match="cannot unpack awscrt"):
        runtime.install_wheel(str(broken), str(target))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.whl", "python"]
    assert (target / "mine.py").exists()


def test_the_controllers_own_awscrt_is_found():
    assert runtime.load_crc64("/nowhere")(b"123456789", 0) == 0xAE8B14860A799888


def test_machine_is_what_wheels_are_named_by():
    architecture, python = runtime.machine()
    assert architecture and python == f"{sys.version_info.major}.{sys.version_info.minor}"
