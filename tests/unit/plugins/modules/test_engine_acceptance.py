# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module engine_acceptance against the lab's stand-in engine, whole and with planted faults, and against servers that are none."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gb10.ring.plugins.modules import engine_acceptance
from lab.engine.standin.api import Api

THINKING = {"enable": {"thinking": True}, "disable": {"thinking": False}}


def served(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def nothing(*_arguments):
    """For a request that hangs: its line would come while another test's output is looked at."""


@pytest.fixture
def images():
    """How many pictures a prompt may hold."""
    return 999


@pytest.fixture
def url(tmp_path, monkeypatch, images):
    monkeypatch.setenv("GB10_LAB_ENGINE_FAULTS", str(tmp_path / "faults"))
    server = Api(("127.0.0.1", 0), ["m"], "/model", 131072, images=images)
    server.RequestHandlerClass = type("Quiet", (server.RequestHandlerClass,), {"log_message": nothing})
    yield served(server)
    server.shutdown()
    server.server_close()


@pytest.fixture
def ask(url, capsys):
    def call(check_mode=False, **options):
        base = {
            "node": "spark1",
            "url": url,
            "served_model_name": "m",
            "timeout_s": 5,
            "_ansible_check_mode": check_mode,
        }
        with patch_module_args({**base, **options}), pytest.raises(SystemExit):
            engine_acceptance.main()
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def failed(result):
    return {check["id"].removeprefix("engine.acceptance_") for check in result["checks"] if not check["ok"]}


def test_a_healthy_group(ask):
    result = ask(needle_lengths=[500, 3000], thinking=THINKING, streams=8)
    assert failed(result) == set()
    names = [one["name"] for one in result["results"]]
    assert names[:9] == [
        "health",
        "models",
        "arithmetic",
        "count",
        "logprobs",
        "reasoning",
        "tools",
        "nonce",
        "streams",
    ]
    assert names[9:] == ["needle_500", "needle_3000"]
    assert all(one["asked"] and one["answered"] for one in result["results"])
    assert not result["changed"]
    assert result["not_asked"] == []


@pytest.mark.parametrize(
    ("fault", "finds", "found"),
    [
        ("nan-logprobs", {"logprobs"}, "not a number: status 400"),
        ("wrong-sums", {"arithmetic"}, "17*19 = '324'"),
        ("mixed-streams", {"streams"}, "the stream of"),
        ("forgets", {"needle_500"}, "at 10% of"),
    ],
)
def test_each_fault_is_found_and_nothing_else(ask, tmp_path, fault, finds, found):
    (tmp_path / "faults").write_text(fault)
    result = ask(needle_lengths=[500])
    assert failed(result) == finds
    check = next(check for check in result["checks"] if not check["ok"])
    assert found in check["found"]
    assert check["answered"] == check["found"]
    assert check["cure"]


def answered(result, name):
    return next(one["answered"] for one in result["results"] if one["name"] == name)


def test_a_model_that_thinks_by_default_is_told_not_to_and_asked_to_where_that_is_the_question(ask, tmp_path):
    (tmp_path / "faults").write_text("thinks")
    result = ask(thinking={**THINKING, "default": True}, needle_lengths=[500])
    assert failed(result) == set()
    assert "reasoning 'I look at what is asked" in answered(result, "reasoning")
    assert failed(ask(thinking={"default": True})) == set()  # no way to keep it from that: room for both


def test_a_model_that_thinks_unknown_to_the_profile_is_told_by_its_empty_answers(ask, tmp_path):
    (tmp_path / "faults").write_text("thinks")
    result = ask(probes=["arithmetic", "nonce"])
    assert failed(result) == {"arithmetic", "nonce"}
    assert "only reasoning 'I look at what is asked" in answered(result, "nonce")
    assert "cut at the most tokens allowed" in answered(result, "nonce")


def test_what_a_person_tells_the_template_is_kept_beside(ask, tmp_path):
    (tmp_path / "faults").write_text("thinks")
    assert failed(ask(extra={"chat_template_kwargs": {"thinking": False}})) == set()
    assert failed(ask(extra={"chat_template_kwargs": {"other": 1}}, thinking=THINKING)) == set()


@pytest.mark.parametrize("run", range(3))  # each shows another order
def test_a_picture_is_seen(ask, run):
    result = ask(sees=True, probes=["health", "models", "image"])
    assert failed(result) == set()
    image = result["results"][-1]
    assert image["name"] == "image"
    assert image["answered"] == repr(image["expected"])


def test_colours_that_are_taken_for_others_are_found(ask, tmp_path):
    (tmp_path / "faults").write_text("colour-blind")
    result = ask(sees=True, needle_lengths=[500])
    assert failed(result) == {"image"}
    image = next(one for one in result["results"] if one["name"] == "image")
    mixed = {"red": "green", "green": "red", "blue": "blue"}
    assert image["answered"] == repr(", ".join(mixed[colour] for colour in image["expected"].split(", ")))


@pytest.mark.parametrize("images", [0])
def test_an_engine_that_was_started_without_a_vision_tower_is_found(ask, images):
    result = ask(sees=True)
    assert failed(result) == {"image"}
    check = next(check for check in result["checks"] if not check["ok"])
    assert check["found"] == "status 400: At most 0 image(s) may be provided in one prompt."
    assert "--language-model-only" in check["cure"]


def test_markers_in_answers_are_found(ask, tmp_path):
    (tmp_path / "faults").write_text("leaks-markers")
    assert "reasoning" in failed(ask())


def test_a_health_that_hangs(ask, tmp_path):
    (tmp_path / "faults").write_text("health-hangs")
    result = ask(timeout_s=1)
    assert failed(result) == {"health"}
    assert result["checks"][0]["found"] == "no answer within 1 s"
    assert "arithmetic" in result["not_asked"]


def test_another_model(ask):
    result = ask(served_model_name="other")
    assert failed(result) == {"models"}
    assert result["checks"][1]["found"] == "m"


def test_nobody_listens(ask):
    result = ask(url="http://127.0.0.1:1")
    assert failed(result) == {"health"}
    assert result["checks"][0]["found"] == "Connection refused"


def test_a_reference_is_recorded_and_compared(ask, tmp_path):
    reference = str(tmp_path / "reference.json")
    assert ask(reference=reference, record=True, check_mode=True)["changed"] is True
    assert not (tmp_path / "reference.json").exists()
    result = ask(reference=reference, record=True)
    assert (result["changed"], result["reference_written"]) == (True, True)
    assert ask(reference=reference, record=True)["changed"] is False
    result = ask(reference=reference)
    assert failed(result) == set()
    assert result["results"][-1]["answered"].startswith("5 of 5 identical, ")
    held = json.loads((tmp_path / "reference.json").read_text())
    held["prompts"][1]["tokens"][2]["token"] = "another"
    (tmp_path / "reference.json").write_text(json.dumps(held))
    result = ask(reference=reference)
    assert failed(result) == {"parity"}
    assert result["results"][-1]["answered"].startswith("4 of 5 identical, ")
    assert "; prompt 2 parts at token 3 (gap 2.000 between 'another' and" in result["results"][-1]["answered"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("{", "Expecting property name"),
        ("[]", "no object with a list of prompts"),
        ("", "Expecting value"),
    ],
)
def test_a_reference_that_cannot_be_read_fails_parity_alone(ask, tmp_path, text, says):
    reference = tmp_path / "reference.json"
    if text is not None:
        reference.write_text(text)
    result = ask(reference=str(reference))
    assert failed(result) == {"parity"}
    assert len(result["checks"]) == 10
    check = result["checks"][-1]
    assert check["found"].startswith(f"{reference}: ") and says in check["found"]
    assert "engine_acceptance_record: true" in check["cure"]
    assert failed(ask(reference=str(tmp_path), probes=["nonce", "parity"])) == {"parity"}  # a directory


def test_a_wrong_answer_is_no_reference(ask, tmp_path):
    (tmp_path / "faults").write_text("wrong-sums")
    result = ask(reference=str(tmp_path / "reference.json"), record=True)
    assert (result["changed"], failed(result)) == (False, {"arithmetic"})
    assert not (tmp_path / "reference.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"streams": 1}, "allowed are 2 to 64"),
        ({"record": True}, "reference is empty"),
        ({"probes": ["x"]}, "must be one or more of"),
    ],
)
def test_options_that_are_refused(ask, options, says):
    assert says in ask(**options)["msg"]


class Broken(BaseHTTPRequestHandler):
    """Answers health and models, then nothing that is right."""

    def do_GET(self):
        body = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"data: {\n\n" if b"stream" in self.path.encode() else b"<html>")

    def log_message(self, *arguments):
        pass


def test_what_the_profile_leaves_without_an_answer_is_told_and_not_asked(ask):
    result = ask(profile={"engine": "vllm", "options": {"max-model-len": 131072}}, needle_lengths=[500])
    assert "tools" not in [one["name"] for one in result["results"]]
    (note,) = [check for check in result["checks"] if check["id"] == "engine.acceptance_tools"]
    assert (note["ok"], note["severity"], note["node"]) == (False, "info", "spark1")
    assert note["found"].startswith("not asked: the profile has no tool-call parser")
    assert {name: f"not asked: {why}" for name, why in result["unanswerable"].items()} == {"tools": note["found"]}
    assert failed(result) == {"tools"}
    assert ask(probes=["tools"])["unanswerable"] == {}


def test_a_server_of_another_kind(ask):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    try:
        result = ask(url=served(server))
    finally:
        server.shutdown()
        server.server_close()
    assert failed(result) == {"arithmetic", "count", "logprobs", "reasoning", "tools", "nonce", "streams"}


def test_the_key_is_sent_and_not_shown(ask):
    seen = []

    class Guarded(Broken):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    try:
        result = ask(url=served(server), api_key="s3cret", probes=["health", "models"])
    finally:
        server.shutdown()
        server.server_close()
    assert seen == ["Bearer s3cret", "Bearer s3cret"]
    assert "s3cret" not in json.dumps(result)
