# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gb10.ring.lab import cgroups, guard, leftovers, procs
from ansible_collections.gb10.ring.lab.leftovers import Seen

FOLDER = Path("/srv/gb10/.lab/test")

MOUNTINFO = """\
24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
60 24 0:50 / /srv/gb10/.lab/test/nodes/spark1/root rw - overlay gb10-aaaaaa-spark1 rw,lowerdir=/x
61 60 7:0 / /srv/gb10/.lab/test/nodes/spark1/root/var/lib/gb10-ring rw - ext4 /dev/loop0 rw
62 24 7:0 / /srv/gb10/.lab/test/nodes/spark1/data rw - ext4 /dev/loop0 rw
63 24 7:1 / /srv/gb10/.lab/test2/nodes/spark1/data rw - ext4 /dev/loop1 rw
64 24 7:2 / /srv/gb10/.lab/test/with\\040blank rw - ext4 /dev/loop2 rw
65 24 0:60 / /srv/gb10/.lab/test rw - tmpfs none rw
"""


def test_mount_points_of_the_folder_only_and_the_deepest_first() -> None:
    assert leftovers.mount_points(MOUNTINFO, FOLDER) == [
        FOLDER / "nodes/spark1/root/var/lib/gb10-ring",
        FOLDER / "nodes/spark1/data",
        FOLDER / "nodes/spark1/root",
        FOLDER / "with blank",
        FOLDER,
    ]


def test_a_mount_on_top_of_another_is_named_twice() -> None:
    twice = MOUNTINFO + "66 62 7:3 / /srv/gb10/.lab/test/nodes/spark1/data rw - ext4 /dev/loop3 rw\n"
    assert leftovers.mount_points(twice, FOLDER).count(FOLDER / "nodes/spark1/data") == 2


def test_loop_devices_backed_by_files_of_the_folder() -> None:
    listed = (
        "/dev/loop0 /srv/gb10/.lab/test/nodes/spark1/data.img\n"
        "/dev/loop1 /srv/gb10/.lab/test2/nodes/spark1/data.img\n"
        "/dev/loop2 /srv/gb10/.lab/test/nodes/spark2/data.img (deleted)\n"
        "/dev/loop3 /var/lib/snapd/x.snap\n"
    )
    assert leftovers.loop_devices(listed, FOLDER) == ["/dev/loop0", "/dev/loop2"]
    assert leftovers.loop_devices("", FOLDER) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["weed", "server", "-dir=/srv/gb10/.lab/test/s3"], True),
        (["systemd-nspawn", "--bind=/srv/gb10/.lab/test/nodes/spark1/data:/var/lib/gb10-ring"], True),
        (["ssh: /srv/gb10/.lab/test/run/cp/0123abcd [mux]"], True),
        (["ssh", "-o", 'ControlPath="/srv/gb10/.lab/test/run/cp/0123abcd"'], True),
        (["tail", "-f", "/srv/gb10/.lab/test"], True),
        (["weed", "-dir=/srv/gb10/.lab/test2/s3"], False),
        (["weed", "-dir=/other/srv/gb10/.lab/test/s3"], False),
        (["sleep", "1000"], False),
        ([""], False),
    ],
)
def test_command_lines_that_name_the_folder(words: list[str], expected: bool) -> None:
    assert leftovers.names_folder(words, FOLDER) is expected


MAIN = Path("/srv/gb10/lab/__main__.py")
SUPERVISOR = ("/usr/bin/python3", str(MAIN), "--instance", "test", "supervise", "spark2", "")


@pytest.mark.parametrize(
    ("words", "nodes", "expected"),
    [
        (SUPERVISOR, None, True),
        (SUPERVISOR, {"spark2"}, True),
        (SUPERVISOR, {"spark1"}, False),
        (SUPERVISOR, set(), False),
        (("/usr/bin/python3", "/other/lab/__main__.py", *SUPERVISOR[2:]), None, False),
        (("/usr/bin/python3", str(MAIN), "--instance", "test2", "supervise", "spark2"), None, False),
        (("/usr/bin/python3", str(MAIN), "--instance", "test", "down"), None, False),
        (("sleep", "1"), None, False),
    ],
)
def test_supervisors(words: tuple[str, ...], nodes: set[str] | None, expected: bool) -> None:
    assert leftovers.is_supervisor(words, MAIN, "test", nodes) is expected


def test_whoever_calls_down_is_spared_with_all_its_ancestors() -> None:
    seen = [Seen(pid, parent, 1, ("x",)) for pid, parent in ((1, 0), (10, 1), (20, 10), (30, 20), (40, 1))]
    spared = leftovers.ancestors(seen, 30)
    assert spared == {30, 20, 10, 1}
    assert leftovers.choose(seen, lambda process: process.netns == 1, spared) == [40]


def test_ancestors_end_at_a_loop_of_reused_pids() -> None:
    assert leftovers.ancestors([Seen(5, 6, 1, ()), Seen(6, 5, 1, ())], 5) == {5, 6}


HYBRID = """\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
UNIFIED = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


@pytest.mark.parametrize(
    ("mountinfo", "expected"),
    [
        (HYBRID, ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"]),
        (UNIFIED, ["/sys/fs/cgroup"]),
        ("24 1 254:0 / / rw - ext4 /dev/vda rw\n", []),
    ],
)
def test_control_group_hierarchies(mountinfo: str, expected: list[str]) -> None:
    assert cgroups.hierarchies(mountinfo) == [Path(path) for path in expected]


@pytest.mark.parametrize(("state", "expected"), [("S", 4321), ("R", 4321), ("Z", None), ("X", None)])
def test_start_time_of_a_process_with_brackets_and_blanks_in_its_name(state: str, expected: int | None) -> None:
    fields = [state, "1", "2", "2", "0", "-1", *["0"] * 13, "4321", "77"]
    assert procs.parse_start_time(f"4711 (a) b (c) {' '.join(fields)}\n") == expected


def test_a_process_is_known_by_pid_and_start_time(tmp_path: Path) -> None:
    record = tmp_path / "run" / "x.json"
    pid = procs.spawn(["sleep", "60"], tmp_path / "log", record)
    process = procs.recall(record)
    assert process is not None and process.pid == pid
    record.write_text(record.read_text().replace(str(process.start), str(process.start - 1)))
    assert procs.recall(record) is None, "a later process with the same pid is another one"
    procs.end([process])
    assert not process.alive()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": "x"}', "nonsense"])
def test_a_broken_record_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert procs.recall(tmp_path / "x.json") is None


def test_a_wait_ends_with_the_last_state() -> None:
    with pytest.raises(procs.LabError, match=r"the moon: not within 0.01 s; last state: half"):
        procs.wait_for("the moon", lambda: "half", 0.01, 0.001)


def test_a_failing_command_says_what_it_said() -> None:
    with pytest.raises(procs.LabError, match=r"exit 3: because"):
        procs.run(["sh", "-c", "echo because >&2; exit 3"])
    with pytest.raises(procs.LabError, match="no-such-program is not installed"):
        procs.run(["no-such-program"])


OURS = {"type": "unreachable", "dst": "198.18.0.0/15", "protocol": "198", "flags": []}


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([], []),
        ([OURS], []),
        ([{**OURS, "protocol": 198}], []),
        ([{**OURS, "protocol": "static"}], ["unreachable 198.18.0.0/15"]),
        ([{"dst": "198.18.4.0/24", "dev": "eth1"}], ["unicast 198.18.4.0/24"]),
        ([OURS, {"dst": "198.19.0.1", "dev": "eth1"}], ["unicast 198.19.0.1"]),
    ],
)
def test_routes_of_others_in_the_labs_range(routes: list[dict[str, object]], expected: list[str]) -> None:
    assert guard.foreign(routes) == expected
