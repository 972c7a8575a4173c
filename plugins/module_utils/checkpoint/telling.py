# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module needs of Ansible, and the modules that only look at a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..host import HostError
from ..report.checks import Check
from .manifest import ManifestError


class Module(Protocol):
    """As much of AnsibleModule as is needed. exit_json and fail_json do not return."""

    params: dict[str, Any]
    check_mode: bool

    def exit_json(self, **result: Any) -> None: ...

    def fail_json(self, **result: Any) -> None: ...


def tell(
    module: Module, name: str, information: Callable[[Mapping[str, Any]], tuple[list[Check], dict[str, Any]]]
) -> None:
    """The whole module: checks, and under that name what there is."""
    try:
        checks, state = information(module.params)
        module.exit_json(changed=False, checks=[check.to_dict() for check in checks], **{name: state})
    except (HostError, ManifestError) as error:
        module.fail_json(msg=f"{module.params['node']}: {error}")
