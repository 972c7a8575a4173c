"""Bad input and faults of a site run on the lab: each ends before it does harm, in one message, and the run after the cure finishes.

Runs inside the controller namespace of a freshly booted lab (`make faults`). The tests build on each other's lab, in file order.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from flip_proxy import FlipProxy
from site_run import INVENTORY, NODES, ctl, on, play

ROOT = "/var/lib/gb10-ring/checkpoints/DeepSeek-V4.1-Flash-EXL3-lab"


def staged(node: str) -> int:
    """Finished or partial checkpoint files on a node."""
    return int(on(node, f"find {ROOT} -name '*.safetensors*' -o -name '*.partial' 2>/dev/null | wc -l"))


STAGE = ("--tags", "preflight,checkpoint")


def test_a_wrong_topology_file_names_the_file_and_every_fault(tmp_path):
    wrong = INVENTORY / "wrong-ring.yml"
    text = (INVENTORY / "ring.yml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("198.18.0.3", "198.18.0.2").replace("supernet:", "supernett:"), encoding="utf-8")
    try:
        code, output = play(inventory=wrong)
    finally:
        wrong.unlink()
    assert code != 0
    assert "wrong-ring.yml" in output
    assert "supernett" in output
    assert "198.18.0.2" in output
    assert "failed=0" not in output or "PLAY RECAP" not in output
    for node in NODES:
        assert on(node, "ls /etc/netplan/60-gb10-ring.yaml 2>/dev/null | wc -l") == "0"


def test_an_unreachable_node_stops_the_run_before_any_node_changes():
    ctl("node", "kill", "spark3")
    try:
        code, output = play()
    finally:
        ctl("node", "start", "spark3")
    assert code != 0
    assert "spark3: preflight.reachable" in output
    assert "Cure:" in output
    assert "spark1: preflight" not in output
    for node in NODES:
        assert on(node, "ls /etc/netplan/60-gb10-ring.yaml 2>/dev/null | wc -l") == "0"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"checkpoint_bucket": "nothere"}, ["nothere", "bucket"]),
        ({"checkpoint_s3_profile": "wrong"}, ["wrong", "checkpoint_s3_profile"]),
        ({"checkpoint_prefix": "no/such/prefix", "checkpoint_files": []}, ["no/such/prefix"]),
        ({"checkpoint_endpoint_url": "http://198.18.0.254:1"}, ["198.18.0.254:1"]),
    ],
    ids=["missing bucket", "unknown profile", "empty prefix", "endpoint down"],
)
def test_a_wrong_source_is_one_message_and_nothing_is_staged(variables, expected):
    code, output = play(*STAGE, "-e", json.dumps(variables))
    assert code != 0
    for text in expected:
        assert text in output
    assert [staged(node) for node in NODES] == [0, 0, 0]


def test_wrong_credentials_are_one_message_without_the_secret(tmp_path):
    credentials = tmp_path / "credentials"
    real = Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).read_text(encoding="utf-8")
    credentials.write_text(re.sub(r"(aws_secret_access_key *= *).*", r"\1wrongwrongwrong", real), encoding="utf-8")
    code, output = play(*STAGE, "-vvv", env={"AWS_SHARED_CREDENTIALS_FILE": str(credentials)})
    assert code != 0
    assert "the secret key does not belong to the access key" in output
    assert "wrongwrongwrong" not in output
    assert [staged(node) for node in NODES] == [0, 0, 0]


def test_missing_files_are_all_named():
    files = ["config.json", "model-00049-of-00048.safetensors", "model-00050-of-00048.safetensors"]
    code, output = play(*STAGE, "-e", json.dumps({"checkpoint_files": files}))
    assert code != 0
    assert "model-00049-of-00048.safetensors" in output
    assert "model-00050-of-00048.safetensors" in output
    assert [staged(node) for node in NODES] == [0, 0, 0]


def test_too_small_a_disk_on_one_node_stops_all_before_the_first_byte():
    on("spark2", "fallocate -l 650M /var/lib/gb10-ring/filler")
    try:
        runs = [play("--tags", "budget", playbook="plan.yml"), play(*STAGE)]
    finally:
        on("spark2", "rm /var/lib/gb10-ring/filler")
    for code, output in runs:
        assert code != 0
        assert "spark2: checkpoint.budget" in output
        assert "spark1: checkpoint.budget" not in output
        # The arithmetic, in the message and as a table of all nodes.
        assert re.search(r" used .*\+ \S+ MB to come = .* of .*, expected at most 85 % = ", " ".join(output.split()))
        verdicts = re.findall(r"^(spark\d) .* (fits|short|nothing to fetch)$", output, flags=re.MULTILINE)
        assert verdicts == [("spark1", "fits"), ("spark2", "short"), ("spark3", "fits")]
        assert len(re.findall(r"^fatal: ", output, flags=re.MULTILINE)) == 1
    for node in NODES:
        assert staged(node) == 0
        assert on(node, f"ls {ROOT} 2>/dev/null | wc -l") == "0"


def test_a_plan_that_fits_is_a_table_and_changes_nothing():
    code, output = play("--tags", "budget", playbook="plan.yml")
    assert code == 0, output
    assert re.search(r"^node +needed +reusable +reclaimable +free +after +ceiling +verdict$", output, re.MULTILINE)
    assert "changed=0" in output and "changed=1" not in output
    assert [on(node, f"ls {ROOT} 2>/dev/null | wc -l") for node in NODES] == ["0", "0", "0"]


def test_a_damaged_object_is_named_and_the_next_run_fetches_it_alone():
    victim = "model-00021-of-00048.safetensors"
    proxy = {"checkpoint_endpoint_url": "http://198.18.0.254:8444"}
    with FlipProxy("198.18.0.254", 8444, "198.18.0.254:8333", victim):
        code, output = play(*STAGE, "-e", json.dumps(proxy))
    assert code != 0
    assert victim in output
    assert (
        "md5:" in output
    )  # MD5SUMS.body covers this shard, and a list in the prefix comes before the store's checksum
    for node in NODES:
        assert on(node, f"test -e {ROOT}/current && echo there || echo absent") == "absent"
        assert on(node, f"find {ROOT}/staging -name '{victim}*' | wc -l") == "0"
    code, output = play(*STAGE, "-v")
    assert code == 0, output
    assert re.findall(r"^ +fetch:\n +bytes: \d+\n +files: (\d+)$", output, flags=re.MULTILINE).count("1") >= len(NODES)
    for node in NODES:
        assert on(node, f"find -L {ROOT}/current -type f | wc -l") == "54"


def test_the_site_finishes_on_the_lab_that_had_all_these_faults():
    code, output = play()
    assert code == 0, output
    assert "unreachable=0    failed=0" in output
