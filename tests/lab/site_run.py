"""Running the site's playbook on the lab, and looking at its nodes."""

from __future__ import annotations

import difflib
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
INVENTORY = CHECKOUT / "inventories" / "lab"
NODES = ("spark1", "spark2", "spark3")
# Files, links and directories of a node, with mode and owner, and what the files hold. Ansible's own (/root/.ansible*) is left out.
INCIDENTS = "/var/lib/gb10-ring/incidents"
TREE = (
    "find /etc /usr/local /root /var/cache /var/lib -xdev \\( -path '/root/.ansible*' -o -path '/var/cache/*/*' -o -path '/var/lib/*/*' \\) "
    "-prune -o -printf '%p %y %m %u %g %l\\n' | sort; find /var/lib/gb10-ring -path '*/lost+found' -prune -o -print | sort; "
    "find /etc /usr/local /root -xdev -type f ! -path '/root/.ansible*' -exec md5sum {} + | sort"
)


def play(
    *extra: str,
    inventory: Path = INVENTORY / "ring.yml",
    env: dict[str, str] | None = None,
    playbook: str = "site.yml",
    timeout: float = 600,
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
        ["lab/ctl", *argv], cwd=CHECKOUT, capture_output=True, text=True, timeout=600, check=True
    ).stdout


def on(node: str, command: str) -> str:
    """What a shell command prints inside a node; it must succeed."""
    return ctl("exec", node, "--", "sh", "-c", command).strip()


def on_all(scripts: dict[str, str] | str) -> dict[str, str]:
    """What a script prints on each node, all at once."""
    given = {node: scripts for node in NODES} if isinstance(scripts, str) else scripts
    with ThreadPoolExecutor(len(given)) as pool:
        return dict(zip(given, pool.map(on, given, given.values()), strict=True))


def incidents() -> set[str]:
    """Names of the incidents that spark1 keeps."""
    return set(on("spark1", f"ls {INCIDENTS} 2>/dev/null || true").split())


def new_incident(known: set[str]) -> str:
    """Name of the one incident beyond `known`; it is written a moment after the ranks have ended."""
    limit = time.monotonic() + 5
    while not (new := incidents() - known):
        assert time.monotonic() < limit, "no incident was written"
        time.sleep(0.1)
    (name,) = new
    return name


def same(before: dict[str, str], after: dict[str, str]) -> None:
    for node in NODES:
        lines = difflib.unified_diff(before[node].splitlines(), after[node].splitlines(), n=0, lineterm="")
        difference = "\n".join(lines)
        assert not difference, f"{node}:\n{difference}"
