"""Running the site's playbook on the lab, and looking at its nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = CHECKOUT / "inventories" / "lab"
NODES = ("spark1", "spark2", "spark3")


def play(
    *extra: str,
    inventory: Path = INVENTORY / "ring.yml",
    env: dict[str, str] | None = None,
    playbook: str = "site.yml",
    timeout: float = 300,
) -> tuple[int, str]:
    """Exit status and output of the playbook, which may take timeout seconds."""
    done = subprocess.run(
        ["ansible-playbook", f"playbooks/{playbook}", "-i", str(inventory), *extra],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {}), "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def ctl(*argv: str) -> str:
    return subprocess.run(
        ["lab/ctl", *argv], cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def on(node: str, command: str) -> str:
    """What a shell command prints inside a node; it must succeed."""
    return ctl("exec", node, "--", "sh", "-c", command).strip()
