# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.checkpoint_stage: signs addresses, sends awscrt where a node lacks it, calls the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import manifest, wheels
from ansible_collections.gb10.ring.plugins.module_utils.checkpoint.options import (
    CONTROLLER_ONLY,
    PAIRS,
    STAGE_OPTIONS,
    range_problems,
)
from ansible_collections.gb10.ring.plugins.module_utils.report.checks import Check
from ansible_collections.gb10.ring.plugins.plugin_utils import s3
from ansible_collections.gb10.ring.plugins.plugin_utils.s3_errors import S3Error

MODULE = "gb10.ring.checkpoint_stage"


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_diff = True
    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(argument_spec=STAGE_OPTIONS, required_together=PAIRS)
        options["node"] = options["node"] or (task_vars or {}).get("inventory_hostname")
        try:
            return {**result, **self._stage(options, task_vars or {})}
        except (S3Error, manifest.ManifestError) as error:
            return {**result, "failed": True, "msg": str(error)}

    def _stage(self, options: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        problems = range_problems(options)
        if problems:
            raise manifest.ManifestError("; ".join(problems))
        moving = options["phase"] == "stage" and not self._task.check_mode
        arguments = node_arguments(options, addresses(options) if moving else {})
        answer = self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)
        if answer.get("failed") or not answer.get("needs_runtime"):
            return answer
        wheel = fitting_wheel(options["wheel_dir"], answer)
        if not moving:
            return with_wheel_check(answer, wheel, options)
        if not wheel:
            return {
                **answer,
                "failed": True,
                "msg": "{}: {}. Cure: {}".format(options["node"], *wheel_texts(options, answer)),
            }
        return self._stage_with(wheel, arguments, task_vars)

    def _stage_with(self, wheel: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Send the wheel into the task's own temporary directory and call the module again."""
        made = self._connection._shell.tmpdir is None
        directory = self._connection._shell.tmpdir or self._make_tmp_path()
        remote = self._connection._shell.join_path(directory, Path(wheel).name)
        try:
            self._transfer_file(wheel, remote)
            self._fixup_perms2((directory, remote))
            return self._execute_module(
                module_name=MODULE, module_args={**arguments, "wheel": remote}, task_vars=task_vars
            )
        finally:
            if made:
                self._remove_tmp_path(directory)


def addresses(options: dict[str, Any]) -> dict[str, Any]:
    """What a node needs to fetch: one presigned address a file, and the authority of the endpoint's certificate."""
    if not options["bucket"]:
        raise S3Error("option bucket is missing; phase stage needs it to sign addresses")
    settings = s3.Settings.from_options(options)
    paths = [file.path for file in manifest.parse(options["plan"]).files]
    urls = s3.sign(s3.connect(settings.for_nodes), settings, paths, options["url_expiry_s"])
    pem = Path(settings.ca_bundle).read_text(encoding="utf-8") if settings.ca_bundle else None
    return {"urls": urls, "ca_pem": pem}


def node_arguments(options: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The module's options: nothing of the credentials, nothing that is not set."""
    kept = {name: value for name, value in options.items() if name not in CONTROLLER_ONLY and value is not None}
    return {**kept, **{name: value for name, value in extra.items() if value is not None}}


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
