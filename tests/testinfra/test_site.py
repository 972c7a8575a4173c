"""What `playbooks/site.yml` leaves on every node of the lab, looked at from outside (SSH, HTTP), not through our own modules."""

from __future__ import annotations

import hashlib
import json
import math
import urllib.request

import pytest

from expected import CHECKOUT, HEAD, ROOT, SOURCE


def test_every_fabric_port_has_exactly_its_planned_address(host, ends):
    links = {link["ifname"]: link for link in json.loads(host.check_output("ip -j -4 addr"))}
    for end in ends:
        link = links[end.netdev]
        found = [(info["local"], info["prefixlen"]) for info in link["addr_info"]]
        assert found == [(end.address, 24)], end.netdev
        assert link["mtu"] == 9000, end.netdev


def test_full_size_pings_pass_unfragmented_and_nothing_larger_does(host, ends):
    for end in ends:
        host.run_expect([0], f"ping -q -c 2 -W 2 -M do -s 8972 -I {end.netdev} {end.peer}")
        host.run_expect([1], f"ping -q -c 1 -W 1 -M do -s 8973 -I {end.netdev} {end.peer}")


def test_the_netplan_file_is_ours_and_private(host):
    file = host.file("/etc/netplan/60-gb10-ring.yaml")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
    assert "gb10.ring" in file.content_string.splitlines()[0]


def test_management_address_is_untouched(host, node):
    link = json.loads(host.check_output("ip -j -4 addr show dev enP7s7"))[0]
    assert [info["local"] for info in link["addr_info"]] == [f"198.18.0.{node.removeprefix('spark')}"]


@pytest.fixture(scope="module")
def source() -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(SOURCE.iterdir()) if path.is_file()
    }


def test_54_files_are_byte_equal_to_the_source_but_config_json(host, source):
    assert len(source) == 54
    output = host.check_output(f"cd $(readlink -f {ROOT}/current) && find . -type f -printf '%P\\n' | xargs sha256sum")
    found = {line.split(None, 1)[1]: line.split(None, 1)[0] for line in output.splitlines()}
    assert sorted(found) == sorted(source)
    assert [name for name in source if found[name] != source[name]] == ["config.json"]


def test_config_json_has_the_heads_and_groups_of_three_ranks_and_nothing_else_changed(host):
    config = json.loads(host.file(f"{ROOT}/current/config.json").content_string)
    original = json.loads((SOURCE / "config.json").read_text(encoding="utf-8"))
    text = config["text_config"]
    assert (text["num_attention_heads"], text["o_groups"]) == (72, 9)
    assert config["virtual_heads_from"] == text["virtual_heads_from"] == {"num_attention_heads": 64, "o_groups": 8}
    del config["virtual_heads_from"], config["kai_tp3_virtual_heads"], text["virtual_heads_from"]
    text.update(num_attention_heads=64, o_groups=8)
    assert config == original


def test_the_original_config_json_is_kept_under_its_digest(host, source):
    kept = host.check_output(f"find {ROOT}/config -type f | sort | xargs sha256sum").splitlines()
    originals = {line.split(None, 1)[0]: line.split(None, 1)[1] for line in kept if "/originals/" in line}
    assert originals == {source["config.json"]: f"{ROOT}/config/originals/{source['config.json']}.json"}


def test_current_is_a_relative_link_to_a_complete_revision(host):
    link = host.file(f"{ROOT}/current")
    assert link.is_symlink
    target = host.check_output(f"readlink {ROOT}/current")
    assert target.startswith("revisions/")
    assert host.file(f"{ROOT}/{target}").is_directory
    receipt = json.loads(host.file(f"{ROOT}/receipts/{target.removeprefix('revisions/')}.json").content_string)
    assert len(receipt["files"]) == 54
    assert host.run(f"find {ROOT}/staging -type f ! -name .lock").stdout == ""


def test_swap_is_off_and_stays_off(host):
    assert len(host.file("/proc/swaps").content_string.splitlines()) == 1
    active = [
        line.split()
        for line in host.file("/etc/fstab").content_string.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert not [fields for fields in active if len(fields) > 2 and fields[2] == "swap"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vm.swappiness", "10"),
        ("vm.overcommit_memory", "0"),
        ("vm.watermark_boost_factor", "0"),
        ("vm.compaction_proactiveness", "0"),
    ],
)
def test_sysctls_hold_now_and_at_the_next_boot(host, key, value):
    assert host.file(f"/proc/sys/{key.replace('.', '/')}").content_string.splitlines()[0] == value
    lines = host.file("/etc/sysctl.d/90-gb10-ring.conf").content_string.splitlines()
    assert f"{key} = {value}" in lines


def test_huge_pages_logind_and_services_are_set(host):
    assert host.file("/sys/kernel/mm/transparent_hugepage/enabled").content_string.split() == ["madvise"]
    assert host.file("/etc/tmpfiles.d/90-gb10-ring.conf").content_string.split()[-1] == "madvise"
    manager = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    assert host.check_output(f"busctl get-property {manager} RemoveIPC") == "b false"
    held = host.check_output("systemctl show -p ExecCondition --value apt-daily-upgrade.service")
    assert "systemctl is-active --quiet gb10-ring-engine.service" in held
    assert host.run("systemctl start apt-daily-upgrade.service").rc == 0
    said = host.check_output("journalctl -q -o cat -n 3 --no-pager -u apt-daily-upgrade.service")
    assert "Skipped due to 'exec-condition'" in said  # the engine serves


def test_rdma_packages_modules_and_memlock_are_in_place(host):
    for package in ("rdma-core", "ibverbs-utils", "infiniband-diags", "perftest"):
        assert host.package(package).is_installed, package
    assert "mlx5_ib" in host.file("/etc/modules-load.d/90-gb10-ring.conf").content_string.split()
    limits = host.file("/etc/security/limits.d/90-gb10-ring.conf").content_string
    assert [line.split() for line in limits.splitlines() if line.startswith("*")] == [
        ["*", "soft", "memlock", "8192"],
        ["*", "hard", "memlock", "8192"],
    ]


def test_the_engine_serves_on_every_rank(host):
    service = host.service("gb10-ring-engine")
    assert service.is_running
    assert service.is_enabled
    line = host.check_output("journalctl -u gb10-ring-engine -o cat | grep 'NET/IB : Using' | tail -n 1")
    for device in ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"):
        assert f"{device}:1/RoCE" in line


def test_the_supervisor_of_every_rank_hears_the_others(host):
    service = host.service("gb10-ring-group")
    assert service.is_running
    assert service.is_enabled
    lines = host.check_output("gb10-ring-group status").splitlines()
    assert [line.split()[:4] for line in lines] == [
        [node, "rank", str(rank), "running"] for rank, node in enumerate(("spark1", "spark2", "spark3"))
    ]
    assert host.file("/etc/gb10-ring/group.token").mode == 0o600
    assert host.file("/run/gb10-ring-group").mode == 0o700
    assert not host.file("/var/lib/gb10-ring/incidents").listdir()


def test_no_signed_address_is_left_on_the_node(host):
    assert host.run("journalctl -o cat | grep -c X-Amz-Signature=").stdout.strip() == "0"
    assert host.run("grep -rlI X-Amz-Signature= /etc /root /tmp /var/tmp /var/log /var/lib/gb10-ring").stdout == ""


def post(path: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://{HEAD}:8000{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200
        return json.load(response)


def test_rank_0_answers_health_chat_and_logprobs_on_its_management_address(host, node):
    assert node in ("spark1", "spark2", "spark3")
    with urllib.request.urlopen(f"http://{HEAD}:8000/health", timeout=20) as response:
        assert response.status == 200
    with urllib.request.urlopen(f"http://{HEAD}:8000/v1/models", timeout=20) as response:
        model = json.load(response)["data"][0]["id"]
    chat = post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "What is 17*23?"}]})
    assert "391" in chat["choices"][0]["message"]["content"]
    completion = post("/v1/completions", {"model": model, "prompt": "ring", "max_tokens": 4, "logprobs": 1})
    logprobs = completion["choices"][0]["logprobs"]["token_logprobs"]
    assert logprobs
    assert all(math.isfinite(value) for value in logprobs)


def test_the_report_of_the_last_run_is_on_the_controller():
    report = json.loads((CHECKOUT / "reports" / "verify.json").read_text(encoding="utf-8"))
    assert report["ok"] is True
    assert {check["node"] for check in report["checks"]} == {"spark1", "spark2", "spark3"}
