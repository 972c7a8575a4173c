# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a single rank of vLLM makes of prompts: {model, prompts, tokens} in, [{text, logprobs}] out. Runs with the Python that has vLLM."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process, and no port of the engine's

from vllm import LLM, SamplingParams


def answers(model: str, prompts: list[str], tokens: int) -> list[dict[str, Any]]:
    engine = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=4,
        kv_cache_memory_bytes=64 << 20,
        distributed_executor_backend="uni",
    )
    wanted = SamplingParams(temperature=0.0, max_tokens=tokens, logprobs=0, ignore_eos=True)
    found = []
    for result in engine.generate(prompts, wanted, use_tqdm=False):
        answer = result.outputs[0]
        chosen = [at[token].logprob for at, token in zip(answer.logprobs, answer.token_ids, strict=True)]
        found.append({"text": answer.text, "logprobs": chosen})
    return found


if __name__ == "__main__":
    said = answers(**json.load(sys.stdin))
    print(json.dumps(said))
