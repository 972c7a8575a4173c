# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies a network change on this machine, and undoes it; runs from systemd units, without Ansible and without a controller.

A copy lies beside ``state.json`` while a change is not confirmed, so this file imports the standard library only, and no sibling.
``guard.py apply|expire|restore FOLDER``: apply the change, undo it when nobody confirmed it, undo it in any case.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

STATE = "state.json"
OUTCOME = "outcome.json"
LAST = "network-last-restore.json"  # beside the folder: what the last restore did, until the next change
ARMED = "armed"
CONFIRMED = "confirmed"
TIMER_UNIT = "gb10-ring-fabric-rollback"
APPLY_UNIT = "gb10-ring-fabric-apply"
NOW_UNIT = "gb10-ring-fabric-rollback-now"
SETTLE = 10.0  # seconds for netplan's renderer to reach the state that was asked for
GRACE = 2.5  # seconds before an address that the renderer did not bring is set by hand
POLL = 0.3
# What ``ip route show`` prints and ``ip route add`` does not take
_ROUTE_STATES = frozenset({"linkdown", "dead", "offload", "rt_offload", "trap", "rt_trap", "pervasive"})
_NO_UNICAST = frozenset({"local", "broadcast", "multicast", "anycast", "unreachable", "blackhole", "prohibit", "throw"})
GENERATED = ("run/systemd/network/*-netplan-*", "run/NetworkManager/system-connections/netplan-*")
IPV6_FLAGS = ("disable_ipv6", "accept_ra", "autoconf", "addr_gen_mode")


def run(argv: list[str], timeout: float = 60.0) -> tuple[int, str]:
    """Exit status and output; -1 when the program is missing or does not end in time."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr.strip() or done.stdout.strip()


def attempt(argv: list[str], timeout: float = 60.0) -> list[str]:
    """Run it; a message when it failed."""
    code, said = run(argv, timeout)
    lines = [line for line in said.splitlines() if len(line.strip()) > 1] or ["no output"]
    reason = next((line for line in lines if "rror" in line or "nvalid" in line), lines[-1])
    return [f"{' '.join(argv)}: exit {code}: {reason}"] if code else []


# --- Interfaces: what they are, and the commands that make them what they should be


def parse_look(addresses: str, routes: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Name -> state, from ``ip -j addr`` and lines of ``ip -o route show table all``. Interfaces that are absent are left out."""
    wanted = set(names)
    by_netdev: dict[str, list[str]] = {}
    for line in routes:
        words = [word for word in line.split() if word not in _ROUTE_STATES]
        if words and words[0] not in _NO_UNICAST and "dev" in words[:-1] and not _of_kernel(words):
            by_netdev.setdefault(words[words.index("dev") + 1], []).append(" ".join(words))
    return {
        entry["ifname"]: _state(entry, sorted(by_netdev.get(entry["ifname"], [])))
        for entry in json.loads(addresses)
        if entry.get("ifname") in wanted
    }


def _of_kernel(words: list[str]) -> bool:
    return any(words[place : place + 2] == ["proto", "kernel"] for place in range(len(words)))


def _state(entry: Mapping[str, Any], routes: list[str]) -> dict[str, Any]:
    flags = entry.get("flags", [])
    found = [item for item in entry.get("addr_info", []) if "local" in item]
    return {
        "up": "UP" in flags,
        "carrier": "LOWER_UP" in flags,
        "mtu": entry.get("mtu", 0),
        "master": entry.get("master", ""),
        "addresses": [
            {"cidr": f"{item['local']}/{item['prefixlen']}", "dynamic": bool(item.get("dynamic"))}
            for item in found
            if not _link_local(item)
        ],
        "link_local": any(_link_local(item) for item in found),
        "link_locals": [f"{item['local']}/{item['prefixlen']}" for item in found if _link_local(item)],
        "routes": routes,
    }


def _link_local(item: Mapping[str, Any]) -> bool:
    return bool(item.get("family") == "inet6" and item.get("scope") == "link")


def corrections(name: str, want: Mapping[str, Any], seen: Mapping[str, Any], add: bool) -> list[list[str]]:
    """Commands that bring one interface from ``seen`` to ``want``. add: set what is missing, too, rather than wait for the renderer.

    want: keys of a state; what it leaves out stays as it is. keep_dynamic: addresses of a DHCP client may come and go.
    """
    commands = []
    if want.get("master", seen["master"]) != seen["master"]:
        commands.append(
            ["ip", "link", "set", "dev", name, *(["master", want["master"]] if want["master"] else ["nomaster"])]
        )
    if want.get("mtu", seen["mtu"]) != seen["mtu"]:
        commands.append(["ip", "link", "set", "dev", name, "mtu", str(want["mtu"])])
    if want.get("up", seen["up"]) != seen["up"]:
        commands.append(["ip", "link", "set", "dev", name, "up" if want["up"] else "down"])
    commands += _address_commands(name, want, seen, add)
    return commands + _route_commands(want, seen, add)


def _address_commands(name: str, want: Mapping[str, Any], seen: Mapping[str, Any], add: bool) -> list[list[str]]:
    if "addresses" not in want:
        return []
    wanted = {address["cidr"]: address["dynamic"] for address in want["addresses"]}
    there = {address["cidr"]: address["dynamic"] for address in seen["addresses"]}
    lease = bool(want.get("keep_dynamic"))
    strangers = [cidr for cidr, dynamic in there.items() if cidr not in wanted and not (dynamic and lease)]
    if not want.get("link_local", True):
        strangers += seen["link_locals"]
    missing = [cidr for cidr in wanted if cidr not in there] if add else []
    return [
        *(["ip", "addr", "del", cidr, "dev", name] for cidr in strangers),
        *(["ip", "addr", "add", cidr, *_extras(cidr, wanted[cidr]), "dev", name] for cidr in missing),
    ]


def _extras(cidr: str, dynamic: bool) -> list[str]:
    """An address of a DHCP client is lent for an hour, in which the client renews it."""
    broadcast = [] if ":" in cidr else ["brd", "+"]
    return [*broadcast, *(["valid_lft", "3600", "preferred_lft", "3600"] if dynamic else [])]


def _route_commands(want: Mapping[str, Any], seen: Mapping[str, Any], add: bool) -> list[list[str]]:
    if "routes" not in want or not add:
        return []
    strangers = [route for route in seen["routes"] if route not in want["routes"]]
    missing = [route for route in want["routes"] if route not in seen["routes"]]
    return [
        *(["ip", _family(route), "route", "del", *route.split()] for route in strangers),
        *(["ip", _family(route), "route", "replace", *route.split()] for route in missing),
    ]


def _family(route: str) -> str:
    return "-6" if any(":" in word for word in route.split()[:3]) or " pref " in route else "-4"


def lacking(name: str, want: Mapping[str, Any], seen: Mapping[str, Any] | None, by_hand: bool) -> list[str]:
    """What still differs. An interface without carrier gets its addresses later, so they are not missed unless set by hand."""
    if seen is None:
        return []
    commands = corrections(name, want, seen, add=by_hand or (seen["carrier"] and want.get("up", True)))
    return [" ".join(command[1:]) for command in commands]


def look(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The state of these interfaces, with their IPv6 flags. Raises ValueError when ``ip`` does not print JSON."""
    _code, addresses = run(["ip", "-j", "addr"])
    lines: list[str] = []
    for family in ("-4", "-6"):
        code, said = run(["ip", "-o", family, "route", "show", "table", "all"])
        lines += said.splitlines() if code == 0 else []
    found = parse_look(addresses, lines, names)
    for name, state in found.items():
        state["ipv6"] = {flag: value for flag in IPV6_FLAGS if (value := _flag(name, flag)) is not None}
    return found


def _flag_file(name: str, flag: str) -> Path:
    return Path("/proc/sys/net/ipv6/conf") / name / flag


def _flag(name: str, flag: str) -> str | None:
    try:
        return _flag_file(name, flag).read_text(encoding="ascii").strip()
    except OSError:
        return None


def settle(wanted: Mapping[str, Mapping[str, Any]], by_hand: bool, nm_ports: Iterable[str] = ()) -> list[str]:
    """Bring interfaces into the wanted state, beside the renderer that is at it too; what differs after SETTLE seconds."""
    start = time.monotonic()
    waiting = list(nm_ports)
    while True:
        passed = time.monotonic() - start
        seen = look(wanted)
        for name, state in seen.items():
            _set_flags(name, wanted[name].get("ipv6", {}), state["ipv6"])
            for command in corrections(name, wanted[name], state, add=by_hand and passed > GRACE):
                run(command, 10.0)
        seen = look(wanted)
        left = [problem for name, want in wanted.items() for problem in lacking(name, want, seen.get(name), by_hand)]
        if not left or time.monotonic() - start > SETTLE:
            return [f"still to do: ip {problem}" for problem in left]
        if passed > GRACE and waiting:  # a profile of before may hold the port
            run(["nmcli", "--wait", "5", "connection", "up", f"netplan-{waiting.pop()}"], 10.0)
        time.sleep(POLL)


def _set_flags(name: str, wanted: Mapping[str, str], seen: Mapping[str, str]) -> None:
    for flag, value in wanted.items():
        if seen.get(flag) not in (None, value):
            with contextlib.suppress(OSError):
                _flag_file(name, flag).write_text(value, encoding="ascii")


# --- Files


def record(path: str) -> dict[str, Any]:
    """A file as it is now, or that it is absent."""
    try:
        content, status = Path(path).read_bytes(), os.stat(path)
    except FileNotFoundError:
        return {"path": path, "content": None}
    encoded = base64.b64encode(content).decode("ascii")
    return {
        "path": path,
        "content": encoded,
        "mode": status.st_mode & 0o7777,
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


def put(file: Mapping[str, Any]) -> None:
    """Make a file what record() said, atomically."""
    target = Path(file["path"])
    if file["content"] is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(handle.fileno(), file["mode"])
            os.fchown(handle.fileno(), file["uid"], file["gid"])
            handle.write(base64.b64decode(file["content"]))
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def put_all(files: Iterable[Mapping[str, Any]]) -> list[str]:
    problems = []
    for file in files:
        try:
            put(file)
        except OSError as error:
            problems.append(f"cannot restore {file['path']}: {error.strerror}")
    return problems


def generated() -> list[dict[str, Any]]:
    """The renderers' files that netplan made from its own."""
    return [record(str(path)) for pattern in GENERATED for path in sorted(Path("/").glob(pattern))]


def put_generated(files: Iterable[Mapping[str, Any]]) -> list[str]:
    """Bring them back without netplan, and remove those that came later."""
    known = {file["path"] for file in files}
    for file in generated():
        if file["path"] not in known:
            Path(file["path"]).unlink(missing_ok=True)
    return put_all(files)


# --- The two things that a unit does


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time: the timer, a rollback by the controller, and a confirmation."""
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def load(folder: Path, name: str = STATE) -> dict[str, Any] | None:
    """The content of a file of ours; None when it is absent or was not written to its end."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def save(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=1).encode()
    put(
        {
            "path": str(path),
            "content": base64.b64encode(text).decode("ascii"),
            "mode": 0o600,
            "uid": os.getuid(),
            "gid": os.getgid(),
        }
    )


def apply(folder: Path) -> None:
    """Let netplan apply the files that are in place, tidy the interfaces, leave the outcome for who waits for it."""
    state = load(folder)
    if state is None:
        return
    job = state["apply"]
    problems = attempt(["nmcli", "connection", "reload"]) if job["nm_reload"] else []
    problems += attempt(["netplan", "apply"])
    if not problems:
        problems = settle(job["links"], by_hand=job["by_hand"], nm_ports=job["nm_ports"])
    save(folder / OUTCOME, {"problems": problems})


def restore(folder: Path, only_armed: bool) -> None:
    """Files and interfaces as they were before the change. only_armed: not a change that was confirmed in the meantime."""
    run(["systemctl", "stop", f"{APPLY_UNIT}.service"])
    with locked(folder):
        state = load(folder)
        if state is None or (only_armed and state["phase"] != ARMED):
            return
        problems = put_all(state["files"])
        if state["apply"]["nm_reload"]:
            problems += attempt(["nmcli", "connection", "reload"])
        refused = attempt(["netplan", "apply"])
        if refused:  # what was generated before the change comes back instead
            problems += [] if state["was_broken"] else refused
            problems += put_generated(state["generated"])
            run(["networkctl", "reload"])
        problems += settle(state["links"], by_hand=True)
        why = "it was not confirmed in time" if only_armed else "it was rolled back"
        save(folder.parent / LAST, {"at": time.strftime("%Y-%m-%d %H:%M:%S %z"), "why": why, "problems": problems})
        release(folder, state)
    run(["systemctl", "--no-block", "stop", f"{TIMER_UNIT}.timer"])


def release(folder: Path, state: Mapping[str, Any]) -> None:
    """Forget the change: the unit for the next boot first, the folder last."""
    for name in state["boot_files"]:
        Path(name).unlink(missing_ok=True)
    run(["systemctl", "daemon-reload"])  # netplan apply does that too, so systemd may have the unit loaded
    shutil.rmtree(folder, ignore_errors=True)


def main(argv: list[str]) -> None:
    what, folder = argv[0], Path(argv[1])
    if what == "apply":
        apply(folder)
    else:
        restore(folder, only_armed=what == "expire")


if __name__ == "__main__":
    main(sys.argv[1:])
