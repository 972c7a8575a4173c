# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_stage: signs addresses, sends awscrt where a node lacks it, follows the module."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, source, wheels
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.layout import Layout
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import (
    CONTROLLER_ONLY,
    PAIRS,
    STAGE_OPTIONS,
    range_problems,
)
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.progress import moved_numbers
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.watch import LEASE_S
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.following import Follower, LostError, Node
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

#: Seconds that a process on a node may take at most. What stands still is ended long before by its own limits.
TIME_LIMIT = 7 * 86400
#: Bytes, or seconds by its rate limit, from which a transfer runs by itself on the node: a dropped connection does not end it
#: within a minute, and it can be followed.
BACKGROUND = 256 << 20
BACKGROUND_S = 60
# Looked at when the controller loads the plugin: the processes that run tasks have no terminal.
AT_TERMINAL = os.isatty(1)

display = Display()


class ActionModule(ActionBase):
    """Also the controller side of other modules that bring files in the same way: see engram_rows."""

    _supports_check_mode = True
    _supports_diff = True
    TRANSFERS_FILES = True
    MODULE = "gb10.ring.checkpoint_stage"
    OPTIONS = STAGE_OPTIONS

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=self.OPTIONS, required_together=PAIRS)
        options["node"] = options["node"] or (task_vars or {}).get("inventory_hostname")
        try:
            return {**result, **self._stage(self._prepared(options), task_vars or {})}
        except (S3Error, manifest.ManifestError, LostError) as error:
            return {**result, "failed": True, "msg": str(error)}

    def _prepared(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options with what only the controller can find out. Raises S3Error and ManifestError."""
        problems = range_problems(options)
        if problems:
            raise manifest.ManifestError("; ".join(problems))
        return options

    def _signs(self, options: dict[str, Any]) -> tuple[Path, Path]:
        """Where the controller shows the node that it is there, and where the node says how far it is."""
        layout, revision = Layout(options["root"], options["plan"]["name"]), options["plan"]["revision"]
        return layout.lease(revision), layout.progress(revision)

    def _stage(self, options: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        moving = options["phase"] == "stage" and not self._task.check_mode
        if moving:
            signed(options)  # what cannot be signed is better known before a node is asked
        arguments = node_arguments(options)
        # Without addresses the node does what needs none, or says what it would need.
        answer = self._execute_module(module_name=self.MODULE, module_args=arguments, task_vars=task_vars)
        if answer.get("failed") or not (answer.get("needs_runtime") or answer.get("needs_sources")):
            return answer
        wheel = fitting_wheel(options["wheel_dir"], answer) if answer.get("needs_runtime") else ""
        if not moving:
            return with_wheel_check(answer, wheel, options) if answer.get("needs_runtime") else answer
        if answer.get("needs_runtime") and not wheel:
            return failure(answer, "{}: {}. Cure: {}".format(options["node"], *wheel_texts(options, answer)))
        background = options["progress"] == "on" or long(answer["summary"]["fetch"]["bytes"], options["rate_limit"])
        return self._rounds(options, {"wheel": wheel, "background": background}, task_vars)

    def _rounds(self, options: dict[str, Any], way: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Call the module until all has come: it comes back when its addresses have expired."""
        moved: dict[str, Any] = {}
        while True:
            answer = self._round(options, way, task_vars)
            now = answer.get("moved", {})
            moved = moved_numbers(moved, now)
            if answer.get("failed"):
                return answer
            if not answer.get("expired"):
                break
            if not now.get("s3_bytes"):
                text = f"{options['node']}: {answer['reason']}\nNew addresses were refused too: compare the clocks"
                return failure(answer, text)
        if answer.get("replaced") and not options.get("replaced_ok"):
            return failure(answer, f"{options['node']}: {answer['reason']}")
        return {**answer, "moved": moved}

    def _round(self, options: dict[str, Any], way: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Send addresses, and awscrt where it is needed, into the task's own temporary directory and call the module."""
        shell = self._connection._shell
        directory = shell.tmpdir or self._make_tmp_path()
        sent = {"sources_file": shell.join_path(directory, source.FILE)}
        try:
            self._transfer_data(sent["sources_file"], source.render(addresses(options)))
            if way["wheel"]:
                sent["wheel"] = shell.join_path(directory, Path(way["wheel"]).name)
                self._transfer_file(way["wheel"], sent["wheel"])
            self._fixup_perms2((directory, *sent.values()))
            arguments = {**node_arguments(options), **sent, "ca_pem": authority(options)}
            arguments = {name: value for name, value in arguments.items() if value is not None}
            if way["background"]:
                arguments["lease_s"] = LEASE_S
                return self._followed(options, arguments, task_vars)
            return self._execute_module(module_name=self.MODULE, module_args=arguments, task_vars=task_vars)
        finally:
            if shell.tmpdir:
                self._remove_tmp_path(shell.tmpdir)

    def _followed(
        self, options: dict[str, Any], arguments: dict[str, Any], task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        """Start the module by itself on the node, say how far it is, return its result."""
        self._task.async_val = TIME_LIMIT
        try:
            job = self._execute_module(
                module_name=self.MODULE, module_args=arguments, task_vars=task_vars, wrap_async=True
            )
        finally:
            # Core would wait for the job once more, with pauses of its own.
            self._task.async_val = 0
        if job.get("failed") or "ansible_job_id" not in job:
            return job

        def ask(mode: str) -> dict[str, Any]:
            known = {"jid": job["ansible_job_id"], "mode": mode, "_async_dir": self._async_dir()}
            return self._execute_module(
                module_name="ansible.legacy.async_status", module_args=known, task_vars=task_vars
            )

        command, run = look_command(*self._signs(options)), os.getppid()
        node = Node(
            options["node"],
            lambda: patient(lambda: self._low_level_execute_command(command).get("stdout", ""), ""),
            lambda: patient(lambda: ask("status"), {}),
            # A worker outlives an ansible-playbook that is killed, or whose terminal is closed; the node is to hear of that.
            lambda: os.getppid() == run,
        )
        loud = options["progress"] == "on" or (options["progress"] == "auto" and AT_TERMINAL)
        result = Follower(node, display.display if loud else None).wait()
        ask("cleanup")
        hidden = ("ansible_job_id", "started", "finished", "results_file", "stderr", "stderr_lines")
        return {name: value for name, value in result.items() if name not in hidden}

    def _async_dir(self) -> str:
        return str(self.get_shell_option("async_dir", default="~/.ansible_async"))


_T = TypeVar("_T")


def patient(call: Callable[[], _T], otherwise: _T) -> _T:
    """A connection that drops does not end what runs on the node; it is asked again, until it has been silent for too long."""
    try:
        return call()
    except AnsibleConnectionFailure:
        return otherwise


def look_command(lease: Path, progress: Path) -> str:
    """Prints the progress. To look is also the sign that somebody still follows: it renews the lease."""
    return f"touch -c {shlex.quote(str(lease))}; cat {shlex.quote(str(progress))} 2>/dev/null || true"


def long(size: int, rate_limit: int) -> bool:
    """Whether a transfer of so many bytes is one to follow."""
    return size >= BACKGROUND or (rate_limit > 0 and size / rate_limit >= BACKGROUND_S)


def signed(options: dict[str, Any]) -> dict[str, str]:
    """A presigned address of each file, as the nodes reach the store. Raises S3Error."""
    if not options["bucket"]:
        raise S3Error("option bucket is missing; phase stage needs it to sign addresses")
    settings = s3.Settings.from_options(options)
    left = set(options.get("sliced") or ())
    paths = [file.path for file in manifest.parse(options["plan"]).files if file.path not in left]
    return s3.sign(s3.connect(settings.for_nodes), settings, paths, options["url_expiry_s"])


def addresses(options: dict[str, Any]) -> dict[str, tuple[source.Source, ...]]:
    """Where a node fetches each file from: other nodes first, where there are any, then the store."""
    peers = {
        path: [source.Source(peer["url"], "peer", float(peer.get("patience_s", 0))) for peer in rows]
        for path, rows in (options["peers"] or {}).items()
    }
    return source.with_peers(signed(options), peers)


def authority(options: dict[str, Any]) -> str | None:
    """Text of the authority of the endpoint's certificate."""
    path = options["ca_bundle"]
    return Path(path).read_text(encoding="utf-8") if path else None


def failure(answer: dict[str, Any], text: str) -> dict[str, Any]:
    return {**answer, "failed": True, "msg": text}


def node_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The module's options: nothing of the credentials, nothing that is not set."""
    return {name: value for name, value in options.items() if name not in CONTROLLER_ONLY and value is not None}


def fitting_wheel(wheel_dir: str | None, answer: dict[str, Any]) -> str:
    """The path of the wheel for the node that gave this answer, or an empty text."""
    directory = Path(wheel_dir or "")
    if not wheel_dir or not directory.is_dir():
        return ""
    name = wheels.choose((path.name for path in directory.iterdir()), answer["machine"], answer["python"])
    return str(directory / name) if name else ""


def wheel_texts(options: dict[str, Any], answer: dict[str, Any]) -> tuple[str, str]:
    """What is wrong when no wheel fits the node, and the cure."""
    directory = options["wheel_dir"] or "WHEEL_DIR"
    return (
        wheels.missing(answer["machine"], answer["python"], directory),
        f"on the controller: {wheels.download_command(answer['machine'], directory)}",
    )


def with_wheel_check(answer: dict[str, Any], wheel: str, options: dict[str, Any]) -> dict[str, Any]:
    """Say before the first byte moves whether awscrt can be brought to the node."""
    wrong, cure = wheel_texts(options, answer)
    check = Check(
        id="checkpoint.runtime",
        node=str(options["node"]),
        ok=bool(wheel),
        found=f"not on the node, the controller has {Path(wheel).name}" if wheel else wrong,
        expected="awscrt on the node, or its wheel on the controller",
        cure="" if wheel else cure,
    )
    return {**answer, "checks": [*answer.get("checks", []), check.to_dict()]}
