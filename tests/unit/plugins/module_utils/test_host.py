from __future__ import annotations

import os
import tracemalloc

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import host


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({}, ""),
        ({"disable": 1, "is-active": 3}, ""),  # its file is gone, and with stop it ended
        ({"disable": 1, "stop": 5, "is-active": 4}, ""),  # nothing of it is left
        ({"disable": 1, "stop": 1, "is-active": 0}, "systemctl stop -- x.service: exit 1: no"),
        ({"disable": 1, "is-active": 0}, "x.service was stopped and yet is active"),
    ],
)
def test_a_unit_whose_file_is_gone_is_switched_off(answers, wrong):
    def run(argv, timeout=60.0, check=True):
        assert not check
        return host.Completed(tuple(argv), answers.get(argv[1], 0), "", "no")

    if wrong:
        with pytest.raises(host.HostError, match=wrong):
            host.switch_off("x.service", run)
    else:
        host.switch_off("x.service", run)


@pytest.mark.parametrize("linked", [False, True])
def test_a_replaced_file_keeps_its_mode_and_its_link(tmp_path, linked):
    file = tmp_path / "file"
    file.write_text("old\n")
    file.chmod(0o640)
    path = tmp_path / "link" if linked else file
    if linked:
        path.symlink_to("file")
    host.replace_text(path, "new\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new\n", 0o640)
    host.replace_text(path, "")
    assert not file.exists()
    host.replace_text(tmp_path / "other", "")
    host.replace_text(file, "again\n")
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_directory_in_place_of_a_file_is_an_error(tmp_path):
    with pytest.raises(host.HostError, match="cannot replace"):
        host.replace_text(tmp_path, "")


def test_only_regular_files_are_read(tmp_path):
    """A pipe would keep its reader waiting, and a device has no end."""
    pipe, zero, absent = tmp_path / "pipe", tmp_path / "zero", tmp_path / "absent"
    os.mkfifo(pipe)
    zero.symlink_to("/dev/zero")
    for path in (pipe, zero, tmp_path):
        with pytest.raises(host.HostError, match=f"cannot read {path}: it is no regular file"):
            host.read_text(path)
    assert host.read_text(absent) is None
    mask = tmp_path / "mask"
    mask.symlink_to("/dev/null")  # as sysctl.d(5) has it
    assert host.read_text(mask) == ""
    assert host.read_text("/proc/sys/kernel/random/boot_id").strip()


def test_what_is_too_large_for_a_text_is_not_read(tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as handle:
        handle.truncate(3 << 30)
    tracemalloc.start()
    with pytest.raises(host.HostError, match="larger than 64 MiB"):
        host.read_text(large)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
