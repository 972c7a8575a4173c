from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.memory.sysctl import (
    ConfigFile,
    Foreign,
    assignments,
    canonical,
    first_line,
    foreign,
    overlay,
    read_order,
    relative_path,
    render,
    selected,
    wanted_settings,
)

OURS = "90-gb10-ring.conf"


@pytest.mark.parametrize(
    ("key", "name", "path"),
    [
        ("vm.swappiness", "vm.swappiness", "vm/swappiness"),
        ("vm/swappiness", "vm.swappiness", "vm/swappiness"),
        ("net.ipv4.conf.enp1s0f0np0.rp_filter",) * 2 + ("net/ipv4/conf/enp1s0f0np0/rp_filter",),
        ("net/ipv4/conf/eth0.7/rp_filter", "net.ipv4.conf.eth0/7.rp_filter", "net/ipv4/conf/eth0.7/rp_filter"),
        ("net.ipv4.conf.eth0/7.rp_filter",) * 2 + ("net/ipv4/conf/eth0.7/rp_filter",),
    ],
)
def test_key_and_path(key, name, path):
    assert canonical(key) == name
    assert relative_path(canonical(key)) == path


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"vm.swappiness": 10}, {"vm.swappiness": "10"}),
        ({"vm/swappiness": "10 "}, {"vm.swappiness": "10"}),
        ({"net.ipv4.tcp_rmem": "4096\t131072  6291456"}, {"net.ipv4.tcp_rmem": "4096 131072 6291456"}),
    ],
)
def test_wanted_settings(given, wanted):
    assert wanted_settings(given) == (wanted, [])


@pytest.mark.parametrize(
    "given",
    [
        {"swappiness": 10},
        {"../etc/passwd": 1},
        {"vm./../../x": 1},
        {"vm..swappiness": 1},
        {"vm.swap piness": 1},
        {"": 1},
        {"vm.swappiness": True},
        {"vm.swappiness": [10]},
        {"vm.swappiness": " "},
    ],
)
def test_unusable_settings_are_named(given):
    wanted, problems = wanted_settings(given)
    assert wanted == {}
    assert len(problems) == 1
    assert next(iter(given)) in problems[0]


def test_all_unusable_settings_are_collected():
    assert len(wanted_settings({"a": 1, "vm.swappiness": False, "vm.dirty_ratio": 5})[1]) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("60\n", "60"),
        ("10\n5000\n", "10"),  # a writer that does not truncate leaves a tail
        ("4096\t131072\t6291456\n", "4096 131072 6291456"),
        ("", ""),
    ],
)
def test_first_line(text, value):
    assert first_line(text) == value


def test_render_is_sorted_and_reads_back():
    wanted = {"vm.swappiness": "10", "vm.dirty_ratio": "5"}
    text = render(wanted)
    assert text.startswith("# Managed by gb10.ring")
    assert [(key, value) for _line, key, value in assignments(text)] == sorted(wanted.items())
    assert render({}) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# vm.swappiness = 1\n; vm.swappiness = 2\n\n", []),
        ("vm.swappiness=60\n", [(1, "vm.swappiness", "60")]),
        ("\n  vm/swappiness   =  60  \n", [(2, "vm.swappiness", "60")]),
        ("-vm.swappiness = 60\n", [(1, "vm.swappiness", "60")]),
        ("-vm.swappiness\n", []),
        ("net.ipv4.conf.*.rp_filter = 2\n", []),
        ("kernel.core_pattern = |/bin/x a=b\n", [(1, "kernel.core_pattern", "|/bin/x a=b")]),
    ],
)
def test_assignments(text, found):
    assert assignments(text) == found


def file(path, rank, text="vm.swappiness = 60\n"):
    return ConfigFile(path, rank, text)


def test_read_order_is_by_name_and_the_strongest_directory_wins():
    files = [
        file("/usr/lib/sysctl.d/99-a.conf", 3),
        file("/run/sysctl.d/10-b.conf", 1),
        file("/etc/sysctl.d/99-a.conf", 0),
        file("/usr/lib/sysctl.d/50-c.conf", 3),
    ]
    assert [entry.path for entry in read_order(files)] == [
        "/run/sysctl.d/10-b.conf",
        "/usr/lib/sysctl.d/50-c.conf",
        "/etc/sysctl.d/99-a.conf",
    ]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], []),
        ([file("/etc/sysctl.d/10-a.conf", 0)], []),
        ([file(f"/etc/sysctl.d/{OURS}", 0)], []),
        ([file("/etc/sysctl.d/99-a.conf", 0)], ["/etc/sysctl.d/99-a.conf"]),
        ([file("/usr/lib/sysctl.d/99-a.conf", 3)], ["/usr/lib/sysctl.d/99-a.conf"]),
        # the same value does no harm, another key is none of ours
        ([file("/etc/sysctl.d/99-a.conf", 0, "vm.swappiness = 10\nvm.dirty_ratio = 3\n")], []),
        # masked by an empty file in /etc
        ([file("/etc/sysctl.d/99-a.conf", 0, ""), file("/usr/lib/sysctl.d/99-a.conf", 3)], []),
        # the last one decides, for better or worse
        ([file("/etc/sysctl.d/95-a.conf", 0), file("/etc/sysctl.d/99-b.conf", 0, "vm.swappiness = 10\n")], []),
        (
            [file("/etc/sysctl.d/95-a.conf", 0, "vm.swappiness=10"), file("/run/sysctl.d/99-b.conf", 1)],
            ["/run/sysctl.d/99-b.conf"],
        ),
        ([file("/etc/sysctl.d/99-a.conf", 0, "vm.swappiness=60\nvm.swappiness=10\n")], []),
    ],
)
def test_foreign(files, found):
    assert [entry.path for entry in foreign(files, OURS, {"vm.swappiness": "10"})] == found


def test_foreign_names_file_line_and_value():
    entry = Foreign("/etc/sysctl.d/99-a.conf", 3, "vm.swappiness", "60")
    assert entry.text() == "/etc/sysctl.d/99-a.conf:3: vm.swappiness = 60"


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ({}, {"vm.swappiness": "10", "vm.overcommit_memory": "0"}),
        ({"vm.swappiness": 60}, {"vm.swappiness": "60", "vm.overcommit_memory": "0"}),
        ({"vm.swappiness": None}, {"vm.overcommit_memory": "0"}),
        ({"vm/swappiness": None, "vm.dirty_ratio": 5}, {"vm.overcommit_memory": "0", "vm.dirty_ratio": "5"}),
    ],
)
def test_a_users_settings_lie_over_the_profiles(given, merged):
    wanted, problems = wanted_settings(given)
    assert problems == []
    assert overlay({"vm.swappiness": "10", "vm.overcommit_memory": "0"}, given, wanted) == merged


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("always [madvise] never\n", "madvise"),
        ("never\n", "never"),
        ("10\n0\n", "10"),
        ("4096\t131072\n", "4096 131072"),
    ],
)
def test_the_marked_choice_of_a_file_is_its_value(text, value):
    assert selected(text) == value
