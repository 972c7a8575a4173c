from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils import host


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
