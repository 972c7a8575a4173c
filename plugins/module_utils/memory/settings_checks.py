# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds of the wanted memory settings on a machine, as checks of the node; pure."""

from __future__ import annotations

from ..report.checks import Check
from . import swap, sysctl
from .serving_unit import NAME
from .settings import MemoryPlan, Places, State, Wanted, decide


def checks(node: str, state: State, wanted: Wanted, places: Places) -> list[Check]:
    """What holds of the wanted settings in this state, as checks of the node."""
    planned = decide(state, wanted, places)
    settings = wanted.settings
    return [
        *(_swap_checks(node, state, planned, places) if wanted.swap_off else ()),
        *(_value_check(node, key, state.values.get(key), settings[key]) for key in sorted(settings)),
        _persisted_check(node, state, planned, places),
        *([_ipc_check(node, state.remove_ipc)] if wanted.keep_ipc and state.remove_ipc is not None else ()),
        *([_serving_check(node, state, wanted)] if wanted.serving else ()),
        *(_foreign_check(node, found, wanted.sysctls[found.key], places) for found in planned.foreign),
    ]


def _swap_checks(node: str, state: State, planned: MemoryPlan, places: Places) -> list[Check]:
    refused = swap.refusal(state.swaps, state.available_kib)
    boot = [
        *(f"{places.fstab}: {line}" for line in swap.fstab_swaps(state.fstab)),
        *(unit.path for unit in planned.mask),
    ]
    return [
        Check(
            "memory.swap",
            node,
            ok=not state.swaps,
            found=", ".join(area.text() for area in state.swaps) or "no swap in use",
            expected="no swap in use",
            cure=f"Not now: {refused}" if refused else "Run the memory role, or swapoff -a",
        ),
        Check(
            "memory.swap_boot",
            node,
            ok=not boot,
            found="; ".join(boot) or "nothing switches swap on at boot",
            expected="nothing switches swap on at boot",
            cure="Run the memory role; it comments the lines and masks the units",
        ),
    ]


def _value_check(node: str, key: str, found: str | None, expected: str) -> Check:
    return Check(
        "memory.sysctl",
        node,
        ok=found == expected,
        found=f"{key} = {found}" if found is not None else f"{key} is not a setting of this kernel",
        expected=f"{key} = {expected}",
        cure="Run the memory role; if the value comes back, look for a service that sets it",
    )


def _persisted_check(node: str, state: State, planned: MemoryPlan, places: Places) -> Check:
    differing = [change.what for change in planned.files]
    wanted = next((change.after for change in planned.files if change.what == places.sysctl_file), "")
    other = [path for path in differing if path != places.sysctl_file]
    found = [f"{places.sysctl_file} {_settings(state.files.get(places.sysctl_file, ''))}"]
    expected = f"{places.sysctl_file} {_settings(wanted or state.files.get(places.sysctl_file, ''))}"
    return Check(
        "memory.persisted",
        node,
        ok=not differing,
        found="; ".join([*found, *(f"{path} differs" for path in other)]),
        expected=expected + ("; each file as the role writes it" if other else ""),
        cure="Run the memory role",
    )


def _settings(text: str) -> str:
    if not text:
        return "absent"
    return "with " + (", ".join(f"{key} = {value}" for _line, key, value in sysctl.assignments(text)) or "no settings")


def _ipc_check(node: str, remove: bool | None) -> Check:
    return Check(
        "memory.remove_ipc",
        node,
        ok=remove is False,
        found=f"logind has RemoveIPC {'on' if remove else 'off'}",
        expected="RemoveIPC off: otherwise a rank that was started by a login loses its semaphores when the login ends",
        cure="Run the memory role; look for another file in /etc/systemd/logind.conf.d that sets RemoveIPC",
        severity="warning",
    )


def _serving_check(node: str, state: State, wanted: Wanted) -> Check:
    """Raised values belong to a serving engine: there with it, gone without it."""
    serving = state.serving
    differing = {key: state.values.get(key) for key, value in wanted.serving.items() if state.values.get(key) != value}
    if not serving.engine:
        ok, found = not serving.values, "the engine does not run"
        if not ok:
            found += f", and yet {', '.join(serving.values)} is still raised"
    elif not serving.values:
        ok, found = serving.running, "not yet: the engine is not ready" if serving.running else f"{NAME} does not run"
    else:
        ok = serving.running and not differing
        found = ", ".join(f"{key} = {value}" for key, value in differing.items()) or "as wanted"
    return Check(
        "memory.serving",
        node,
        ok=ok,
        found=found,
        expected=", ".join(f"{key} = {value}" for key, value in sorted(wanted.serving.items()))
        + " while the engine serves",
        cure=f"systemctl restart {NAME}; journalctl -u {NAME} tells why it does not hold",
        severity="warning",
    )


def _foreign_check(node: str, found: sysctl.Foreign, expected: str, places: Places) -> Check:
    return Check(
        "memory.foreign",
        node,
        ok=False,
        found=found.text(),
        expected=f"no file read after {places.sysctl_file} that sets {found.key} to other than {expected}",
        cure=f"Take line {found.line} out of {found.path}, or give memory_sysctls its value; it wins at the next boot",
        severity="warning",
    )
