# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gb10.ring.plugins.module_utils.engine import secret_names
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api-key", True),
        ("--api-key", True),
        ("--api_key", True),
        ("API-KEY", True),
        ("admin-api-key", True),
        ("apikey", True),
        ("hf-token", True),
        ("--token", True),
        ("ssl-keyfile-password", True),
        ("s3-secret-access-key", True),
        ("--kv-transfer-config.redis_password", True),
        ("api-key-file", False),
        ("api-key-path", False),
        ("ssl-keyfile", False),
        ("tokenizer", False),
        ("tokenizer-mode", False),
        ("tokenizer-revision", False),
        ("skip-tokenizer-init", False),
        ("max-num-batched-tokens", False),
        ("max-total-tokens", False),
        ("long-prefill-token-threshold", False),
        ("enable-prompt-tokens-details", False),
        ("return-tokens-as-token-ids", False),
        ("speculative-num-draft-tokens", False),
        ("speculative-token-map", False),
        ("allow-credentials", False),
        ("key", False),
    ],
)
def test_names_of_flags(name, secret):
    assert secret_names.of_flag(name) is secret


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("HF_TOKEN_2", True),
        ("HUGGING_FACE_HUB_TOKEN", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("aws_secret_access_key", True),
        ("VLLM_API_KEY", True),
        ("REDIS_PASSWORD", True),
        ("HF_TOKEN_PATH", False),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", False),
    ],
)
def test_names_of_variables(name, secret):
    assert secret_names.of_variable(name) is secret


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--api-key", "s"], ["--api-key"]),
        (["--api-key=s"], ["--api-key"]),
        (["--api-key=s", "--api-key"], ["--api-key"]),
        (["--hf-token", "--seed", "1"], []),
        (["--hf-token"], []),
        (["--config", '{"a": {"api_key": "s"}}'], ["--config.a.api_key"]),
        (["--config", "{a"], []),
        (["--tokenizer-mode", "auto", "api-key"], []),
        ([], []),
    ],
)
def test_words_of_a_command_line(words, found):
    assert secret_names.in_words(words) == found


def test_a_flag_without_value_holds_nothing():
    assert secret_names.in_options({"hf-token": True, "api-key": None, "token": False}) == []
    assert secret_names.in_options({"api-key": 7, "a": {"b": {"password": "s"}}}) == ["api-key", "a.b.password"]


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_no_published_setting_is_taken_for_one(name):
    given = GROUPS[name].read()
    assert secret_names.in_options(given.get("options", {})) == []
    assert secret_names.in_words([str(word) for word in given.get("args", [])]) == []
    assert [name for name in given.get("env", {}) if secret_names.of_variable(name)] == []
    for spec in GROUPS[name].specs()[1]:
        assert secret_names.in_words(spec.argv) == []
