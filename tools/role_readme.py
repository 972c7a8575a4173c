#!/usr/bin/env python3
"""Write each role's README.md from its argument spec; ``--check`` only says which ones are stale (exit 1)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
MARKUP = re.compile(r"\b[OVMPCIBE]\(([^()]*)\)|\bRV\(([^()]*)\)")


def plain(text: str) -> str:
    """Ansible's mark-up as Markdown code."""
    return MARKUP.sub(lambda match: f"`{match.group(1) or match.group(2)}`", text).strip()


def sentences(value: str | list[str]) -> str:
    return " ".join(plain(part) for part in ([value] if isinstance(value, str) else value))


def option_row(name: str, option: dict[str, Any]) -> str:
    kind = option.get("type", "str")
    if "elements" in option:
        kind = f"{kind} of {option['elements']}"
    default = "required" if option.get("required") else ""
    if "default" in option:
        default = f"`{option['default']}`"
    choices = f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}." if "choices" in option else ""
    text = (sentences(option["description"]) + choices).replace("|", "\\|").replace("\n", " ")
    return f"| `{name}` | {kind} | {default} | {text} |"


def entry_point(name: str, spec: dict[str, Any]) -> list[str]:
    lines = [f"## Entry point `{name}`", "", f"{plain(spec['short_description'])}.", ""]
    description = spec.get("description", [])
    for sentence in [description] if isinstance(description, str) else description:
        lines += [f"- {plain(sentence)}"]
    if description:
        lines.append("")
    options = spec.get("options") or {}
    if options:
        lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
        lines += [option_row(option, options[option]) for option in options]
        lines.append("")
    return lines


def readme(role: Path) -> str:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    lines = [
        f"# Role `gb10.ring.{role.name}`",
        "",
        "<!-- Written by tools/role_readme.py from meta/argument_specs.yml. -->",
        "",
    ]
    for name, spec in specs.items():
        lines += entry_point(name, spec)
    return "\n".join(lines).rstrip() + "\n"


def main(check: bool) -> int:
    stale = []
    for role in sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir()):
        target, wanted = role / "README.md", readme(role)
        if not target.exists() or target.read_text(encoding="utf-8") != wanted:
            stale.append(str(target.relative_to(ROOT)))
            if not check:
                target.write_text(wanted, encoding="utf-8")
    if check and stale:
        print(f"stale, run tools/role_readme.py: {', '.join(stale)}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
