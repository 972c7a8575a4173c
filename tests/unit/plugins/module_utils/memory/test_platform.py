"""Every platform check on trees of /proc and /sys, and all nodes of a group compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.host import Completed, HostError
from ansible_collections.gb10.ring.plugins.module_utils.memory import parity, platform, platform_look
from ansible_collections.gb10.ring.plugins.module_utils.memory.firewall import Leg
from ansible_collections.gb10.ring.plugins.module_utils.memory.platform import Expected, Platform, checks
from ansible_collections.gb10.ring.tests.unit.fixtures.platform_trees import (
    CASES,
    CONTAINED,
    CONTAINERS,
    HEALTHY,
    LEFT,
    OWN,
    PODS,
    build,
    meminfo,
    process,
)

RECORDED = Path(__file__).parents[3] / "fixtures/memory/recorded/tree"
UNITS = (
    "Id={engine}\nLoadState=loaded\nActiveState={state}\n\nId=earlyoom.service\nLoadState={oom}\nActiveState=active\n"
)


@pytest.fixture
def said(monkeypatch):
    """What the machine's commands print."""
    answers = {
        "systemctl": UNITS.format(engine=platform.ENGINE, state="inactive", oom="not-found"),
        "timedatectl": "yes\n",
        "dpkg-query": "rdma-core installed 50.0-2build2\nperftest not-installed \n",
        "nft": '{"nftables": []}',
    }

    def run(argv, timeout=60.0, check=True):
        if argv[0] not in answers:
            raise HostError(f"{argv[0]} is not installed on this machine")
        return Completed(tuple(argv), 0, answers[argv[0]], "")

    monkeypatch.setattr(platform_look, "run", run)
    return answers


def bad(found, **expected):
    return {check.id: check.severity for check in checks(found, Expected("spark1", **expected)) if not check.ok}


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ("healthy", {}),
        ("kho kernel", {"platform.kho": "error"}),
        ("kho kernel with kho=off", {}),
        ("swap on zram", {}),
        ("swap file", {}),
        ("swap file that does not fit", {"platform.swap": "error"}),
        ("stale engine", {"platform.stale_engine": "error"}),
        ("memory that nobody holds", {"platform.lost_memory": "warning"}),
        ("page cache full", {}),
        ("another kernel", {}),
        ("no driver", {"platform.driver": "error"}),
        ("wrong driver", {"platform.driver": "warning"}),
        ("pinned gid", {"rdma.nccl_conf": "error"}),
        ("loud nccl", {"rdma.nccl_conf": "warning"}),
        ("peermem", {"rdma.vendor_driver": "warning"}),
    ],
)
def test_what_is_wrong_with_each_machine(tmp_path, said, case, wrong):
    found = platform_look.look(build(tmp_path, CASES[case]))
    assert bad(found) == wrong
    for check in checks(found, Expected("spark1")):
        assert check.node == "spark1" and check.found and check.expected
        assert check.ok or len(check.cure) > 20


def test_a_recorded_machine(said):
    """Not composed: the files as a kernel had them, while a process with the name of vLLM's engine held 4 GiB."""
    found = platform_look.look(RECORDED)
    assert (found.kernel, found.swaps, found.thp) == ("6.18.44-fc-v657", (), "madvise")
    assert found.memory["MemTotal"] == 24_684_092
    wrong = {check.id: check.found for check in checks(found, Expected("spark1")) if not check.ok}
    assert set(wrong) == {"platform.driver", "platform.stale_engine"}
    assert "VLLM::EngineCor" in wrong["platform.stale_engine"] and "4.0 GiB" in wrong["platform.stale_engine"]


def test_every_case_is_in_the_table():
    table = test_what_is_wrong_with_each_machine.pytestmark[0].args[1]
    assert [row[0] for row in table] == list(CASES)


def of(found, name):
    return next(check for check in checks(found, Expected("spark1")) if check.id == name)


@pytest.mark.parametrize(
    "row",
    [
        ("kho kernel", "platform.kho", "CmaTotal 0 KiB, CmaFree 9765000 KiB: 9.3 GiB set aside; 7.0.0-1019", "kho=off"),
        (
            "stale engine",
            "platform.stale_engine",
            "pid 4711 VLLM::EngineCore (3.0 GiB resident); 28.0 GiB of 121.7",
            "kill 4711",
        ),
        ("stale engine", "platform.stale_engine", "91.0 GiB with the GPU driver", "comes back"),
        ("swap file that does not fit", "platform.swap", "12582912 KiB used", "9437184 KiB too few"),
        ("memory that nobody holds", "platform.lost_memory", "34.0 GiB in no process and no cache", "Restart the node"),
        (
            "pinned gid",
            "rdma.nccl_conf",
            "/etc/nccl.conf:2: NCCL_IB_GID_INDEX=3; /etc/nccl.conf:3: NCCL_DEBUG=INFO",
            "GID_INDEX must",
        ),
        (
            "peermem",
            "rdma.vendor_driver",
            "/usr/bin/ofed_info, module nvidia_peermem is loaded, /etc/modules-load.d/",
            "OFED",
        ),
        (
            "wrong driver",
            "platform.driver",
            "kernel 6.17.0-1031-nvidia, NVIDIA driver 590.48.01",
            "preflight_driver_pairs",
        ),
        ("swap on zram", "platform.swap", "/dev/zram0 (partition, 8388604 KiB, 1048576 KiB used)", ""),
    ],
)
def test_what_each_check_says(tmp_path, said, row):
    case, name, found, cure = row
    check = of(platform_look.look(build(tmp_path, CASES[case])), name)
    assert found in check.found
    assert cure in check.cure


@pytest.mark.parametrize(
    ("files", "state", "stale"),
    [
        (OWN, "active", False),
        (OWN, "inactive", False),
        (CONTAINED, "active", False),  # our unit may run it
        (CONTAINED, "inactive", True),
    ],
)
def test_our_own_engine_is_not_stale(tmp_path, said, files, state, stale):
    said["systemctl"] = UNITS.format(engine=platform.ENGINE, state=state, oom="loaded")
    found = platform_look.look(build(tmp_path, {**HEALTHY, **files}))
    assert of(found, "platform.stale_engine").ok is not stale
    assert found.oom_daemon == "earlyoom"


def serving(tmp_path, cgroup, **more):
    """A node whose memory an engine in this control group has, and what else is on it."""
    engine = process(77, "VLLM::Worker_TP", "VLLM::Worker_TP0", 3 * 1024 * 1024, cgroup)
    full = {"proc/meminfo": meminfo(MemFree=9 * 1024 * 1024, MemAvailable=9 * 1024 * 1024)}
    return platform_look.look(build(tmp_path, {**HEALTHY, **full, **engine, **more}))


@pytest.mark.parametrize("cgroup", PODS.values(), ids=PODS)
def test_pods_are_the_groups_own_where_it_runs_in_pods(tmp_path, said, cgroup):
    """No unit of ours is active then. Its memory is no memory that was lost either."""
    found = serving(tmp_path, cgroup)
    assert bad(found, renderer="kubernetes") == {}
    for renderer in ("", "venv", "docker", "podman"):
        assert bad(found, renderer=renderer) == {"platform.stale_engine": "error"}


@pytest.mark.parametrize("cgroup", PODS.values(), ids=PODS)
@pytest.mark.parametrize("state", ["active", "inactive"])
def test_what_a_cluster_runs_is_not_to_be_killed(tmp_path, said, cgroup, state):
    said["systemctl"] = UNITS.format(engine=platform.ENGINE, state=state, oom="not-found")
    check = of(serving(tmp_path, cgroup), "platform.stale_engine")
    assert not check.ok and ", in a pod)" in check.found
    assert "kill" not in check.cure and "Deployment" in check.cure
    assert cgroup.splitlines()[0] in check.cure and "4:memory" not in check.cure


def test_a_pod_and_a_process_each_have_their_cure(tmp_path, said):
    check = of(serving(tmp_path, PODS["k3s"], **LEFT), "platform.stale_engine")
    assert "sudo kill 4711)" in check.cure and "Delete in the cluster" in check.cure


@pytest.mark.parametrize("files", [LEFT, CONTAINED])
def test_beside_pods_other_engines_are_stale(tmp_path, said, files):
    other = {path.replace("proc/77/", "proc/78/"): text for path, text in files.items()}
    found = serving(tmp_path, PODS["containerd"], **other)
    (check,) = [one for one in checks(found, Expected("spark1", renderer="kubernetes")) if not one.ok]
    assert check.id == "platform.stale_engine" and "in a pod" not in check.found
    assert check.expected == "no engine outside of the group's pods"


@pytest.mark.parametrize("cgroup", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_are_the_groups_own_while_it_serves(tmp_path, said, cgroup):
    said["systemctl"] = UNITS.format(engine=platform.ENGINE, state="active", oom="not-found")
    found = serving(tmp_path, cgroup)
    for renderer in ("", "docker", "podman"):
        assert bad(found, renderer=renderer) == {}


@pytest.mark.parametrize(
    ("comm", "cmdline", "name"),
    [
        ("VLLM::EngineCor", "", "VLLM::EngineCor"),
        ("VLLM::Worker_TP", "VLLM::Worker_TP0_EP0", "VLLM::Worker_TP0_EP0"),
        ("VLLM::EngineCor", "python3 /opt/vllm/bin/vllm serve", "VLLM::EngineCor"),
        (
            "python3",
            "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve /models/x",
            "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve /models/x",
        ),
        ("python3", "python3 -m sglang.launch_server --tp 4", "python3 -m sglang.launch_server --tp 4"),
        ("llama-server", "/usr/bin/llama-server -m x", "/usr/bin/llama-server -m x"),
        ("vim", "vim notes-on-vllm.md", ""),
        ("vim", "vim /opt/vllm", ""),
        ("python3", "python3 -u /opt/tool.py /opt/vllm", ""),
        ("python3", "python3", ""),
        ("rsync", "rsync -a /opt/vllm-old /backup", ""),
        ("kthreadd", "", ""),
    ],
)
def test_engines_are_known_by_name(comm, cmdline, name):
    assert platform_look.engine_name(comm, cmdline) == name


def test_a_machine_that_answers_nothing_is_looked_at_all_the_same(tmp_path, said):
    said.clear()
    found = platform_look.look(tmp_path)
    assert bad(found) == {"platform.driver": "error", "platform.time_sync": "warning"}
    assert (found.ruleset, found.units, found.packages, found.facts()["driver"]) == (None, {}, {}, None)
    assert bad(found, driver_pairs={}, time_sync=False) == {}


def test_expectations_can_be_left_out_or_changed(tmp_path, said):
    found = platform_look.look(build(tmp_path, CASES["swap file that does not fit"]))
    assert bad(found, swap_off=False, page_sizes=(16384,)) == {"platform.page_size": "error"}


def test_the_firewall_is_judged_where_it_is_known(tmp_path, said):
    said[
        "nft"
    ] = """{"nftables": [{"chain": {"family": "ip", "table": "filter", "name": "INPUT", "hook": "input", "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}}]}"""
    found = platform_look.look(build(tmp_path, HEALTHY))
    legs = (Leg("enp1s0f0np0", "10.100.0.0/24"),)
    assert bad(found, legs=legs) == {"rdma.firewall": "error", "rdma.forward": "info"}
    check = next(check for check in checks(found, Expected("spark1", legs=legs)) if check.id == "rdma.firewall")
    assert check.found == "chain ip filter INPUT lets nothing new in on enp1s0f0np0"
    assert "sudo ufw allow in on enp1s0f0np0" in check.cure
    assert bad(replace(found, ruleset=None), legs=legs) == {}
    channels = tuple(Leg("enP7s7", f"192.0.2.{peer}/32", port) for port in (7873, 7872) for peer in (12, 13))
    assert bad(found, channels=channels) == {"platform.channels": "warning"}
    check = next(check for check in checks(found, Expected("spark1", channels=channels)) if not check.ok)
    assert check.found == "chain ip filter INPUT seems to drop UDP to 7872, 7873 on enP7s7"
    assert "sudo ufw allow in on enP7s7 to any port 7872 proto udp and sudo ufw allow" in check.cure
    assert (
        bad(replace(found, ruleset=()), channels=channels) == bad(replace(found, ruleset=None), channels=channels) == {}
    )


@pytest.fixture
def group(tmp_path, said):
    """Facts of three healthy nodes."""
    return {name: platform_look.look(build(tmp_path / name, HEALTHY)) for name in ("spark1", "spark2", "spark3")}


def compared(nodes, names=tuple(parity.PROPERTIES)):
    return parity.compare({name: found.facts() for name, found in nodes.items()}, names)


def test_equal_nodes_are_one_check_each_property(group):
    found = compared(group)
    assert all(check.ok for check in found)
    assert [check.id for check in found] == [f"parity.{name}" for name in parity.PROPERTIES if name != "hotplug"]


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("another kernel", ["parity.kernel", "parity.driver"]),
        ("kho kernel with kho=off", ["parity.kernel", "parity.driver", "parity.kho"]),
        ("swap file", ["parity.swap"]),
    ],
)
def test_the_odd_one_out_is_named(tmp_path, said, group, case, names):
    group["spark2"] = platform_look.look(build(tmp_path / "odd", CASES[case]))
    found = [check for check in compared(group) if not check.ok]
    assert [(check.id, check.node) for check in found] == [(name, "spark2") for name in names]
    assert all("spark1, spark3 have" in check.expected for check in found)


@pytest.mark.parametrize(
    ("kernels", "odd"),
    [
        ({"a": "1", "b": "2"}, {"a": "b has 2", "b": "a has 1"}),
        ({"a": "1", "b": "2", "c": "3"}, {"a": "b has 2; c has 3", "b": "a has 1; c has 3", "c": "a has 1; b has 2"}),
        ({"a": "1", "b": "1", "c": "1", "d": "2"}, {"d": "a, b, c have 1"}),
        (
            {"a": "1", "b": "1", "c": "2", "d": "2"},
            {
                "a": "b has 1; c, d have 2",
                "b": "a has 1; c, d have 2",
                "c": "a, b have 1; d has 2",
                "d": "a, b have 1; c has 2",
            },
        ),
        ({"a": "1", "b": None}, {}),
        ({"a": "1"}, {}),
    ],
)
def test_who_is_odd_is_the_smaller_part(kernels, odd):
    found = parity.compare({node: {"kernel": kernel} for node, kernel in kernels.items()}, ["kernel"])
    assert {
        check.node: check.expected.removeprefix("the same on all nodes: ") for check in found if not check.ok
    } == odd


def test_an_unknown_property_is_refused():
    with pytest.raises(ValueError, match="unknown property colour; known are kernel"):
        parity.compare({}, ["colour"])


def test_a_platform_is_comparable_when_nothing_is_known():
    assert parity.compare({"a": Platform().facts(), "b": Platform().facts()}, ["driver", "thp", "memory"]) == []
