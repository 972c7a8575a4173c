from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.fabric.rdma_settings import (
    LIMITS_FILE,
    MODULES_FILE,
    SYSTEMD_FILE,
    Wanted,
    builtin_names,
    decide,
    files,
    limit_refusal,
    memlock_bytes,
    option_problems,
    to_load,
)

WANTED = Wanted(("mlx5_core", "mlx5_ib"), "unlimited", "infinity")


def test_files():
    texts = files(WANTED)
    assert texts[MODULES_FILE].splitlines()[1:] == ["mlx5_core", "mlx5_ib"]
    assert texts[LIMITS_FILE].splitlines()[1:] == [
        "* soft memlock unlimited",
        "* hard memlock unlimited",
        "root soft memlock unlimited",
        "root hard memlock unlimited",
    ]
    assert texts[SYSTEMD_FILE].splitlines()[1:] == ["[Manager]", "DefaultLimitMEMLOCK=infinity"]
    assert all(text.startswith("# Managed by gb10.ring") for text in texts.values())


@pytest.mark.parametrize(
    ("wanted", "current", "missing", "what"),
    [
        (WANTED, {}, [], [MODULES_FILE, LIMITS_FILE, SYSTEMD_FILE]),
        (WANTED, files(WANTED), [], []),
        (WANTED, files(WANTED), ["mlx5_ib"], ["kernel module mlx5_ib"]),
        (Wanted(("mlx5_core", "mlx5_ib"), "unlimited", "infinity", load=False), files(WANTED), ["mlx5_ib"], []),
        (Wanted((), "", ""), files(WANTED), [], [MODULES_FILE, LIMITS_FILE, SYSTEMD_FILE]),
        (Wanted((), "", ""), {}, [], []),
        (Wanted(WANTED.modules, "8192", "infinity"), files(WANTED), [], [LIMITS_FILE]),
        (Wanted(WANTED.modules, "unlimited", "8M:infinity"), files(WANTED), [], [SYSTEMD_FILE]),
    ],
)
def test_decide(wanted, current, missing, what):
    plan = decide(wanted, "/etc", current, missing).plan
    assert [change.what.removeprefix("/etc/") for change in plan.changes] == what
    assert all(change.why for change in plan.changes)


def test_an_empty_option_removes_the_file():
    changes = decide(Wanted((), "", ""), "/etc", files(WANTED), []).files
    assert [change.after for change in changes] == ["", "", ""]


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (WANTED, 0),
        (Wanted((), "", ""), 0),
        (Wanted((), "8192", "8M"), 0),
        (Wanted((), "8192", "4096:infinity"), 0),
        (Wanted(("a b",), "", ""), 1),
        (Wanted(("",), "", ""), 1),
        (Wanted(("x\ny",), "", ""), 1),
        (Wanted((), "infinity", "unlimited"), 2),
        (Wanted((), "8M", "8m"), 2),
        (Wanted((), "-1", "8M\n[Manager]"), 2),
    ],
)
def test_option_problems(wanted, number):
    assert len(option_problems(wanted)) == number


@pytest.mark.parametrize(
    ("modules", "loaded", "builtin", "missing"),
    [
        (["mlx5_core", "mlx5_ib"], [], [], ("mlx5_core", "mlx5_ib")),
        (["mlx5_core", "mlx5_ib"], ["mlx5_core"], ["mlx5-ib"], ()),
        (["rdma-cm"], ["rdma_cm"], [], ()),
        ([], ["x"], [], ()),
    ],
)
def test_to_load(modules, loaded, builtin, missing):
    assert to_load(modules, loaded, builtin) == missing


def test_builtin_names():
    text = "kernel/drivers/net/loopback.ko\nkernel/drivers/infiniband/core/ib_core.ko.zst\n"
    assert builtin_names(text) == ["loopback", "ib_core"]


@pytest.mark.parametrize(("value", "expected"), [("unlimited", None), ("0", 0), ("8192", 8388608)])
def test_memlock_bytes(value, expected):
    assert memlock_bytes(value) == expected


@pytest.mark.parametrize(
    ("memlock", "allowed", "refused"),
    [("unlimited", True, False), ("unlimited", False, True), ("", False, False), ("9000", False, True)],
)
def test_limit_refusal(memlock, allowed, refused):
    text = limit_refusal(Wanted((), memlock, ""), "8192 KiB", allowed)
    assert bool(text) is refused
    assert not refused or ("8192 KiB" in text and "SSH" in text and "rdma_memlock" in text)
