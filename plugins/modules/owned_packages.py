#!/usr/bin/python
# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: owned_packages
short_description: Record which Debian packages an installation brings, and remove exactly these
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - V(noted) simulates the installation of O(names) and records in O(record_path) every package that it would bring, dependencies too,
    before M(ansible.builtin.apt) installs them. Packages that are there already are never recorded.
  - V(absent) removes what is on record and installed. It simulates that first, and removes nothing when apt would take anything else
    along or bring something in its place; a warning then says so, and the record stays for the next run.
  - The configuration of a package goes too, unless it was there before the package was.
  - An upgrade of a package that was there is not taken back.
  - Needs root.
extends_documentation_fragment:
  - gb10.ring.attributes.changing
options:
  state:
    description: V(noted) before an installation, V(absent) to take it back.
    type: str
    choices: [noted, absent]
    default: noted
  names:
    description: Packages that are about to be installed, without those that are only recommended. Of no use for O(state=absent).
    type: list
    elements: str
    default: []
  record_path:
    description: JSON file with the packages on record.
    type: path
    default: /var/lib/gb10-ring/packages-before.json
requirements:
  - apt and dpkg on the node
seealso:
  - module: ansible.builtin.apt
  - module: gb10.ring.rdma_settings
"""

EXAMPLES = r"""
- name: Record what comes with perftest
  gb10.ring.owned_packages:
    names: [perftest]

- name: Install perftest
  ansible.builtin.apt:
    name: perftest
    install_recommends: false

- name: Remove what came with it
  gb10.ring.owned_packages:
    state: absent
"""

RETURN = r"""
packages:
  description: For V(noted), the packages on record; for V(absent), those that were removed or would be.
  returned: success
  type: list
  elements: str
  sample: [libibumad3, perftest]
notes:
  description: For O(state=absent), why packages stay.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.ring.plugins.module_utils import before, made, packages
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, run, write_text

SPEC = {
    "state": {"type": "str", "choices": ["noted", "absent"], "default": "noted"},
    "names": {"type": "list", "elements": "str", "default": []},
    "record_path": {"type": "path", "default": "/var/lib/gb10-ring/packages-before.json"},
}
APT = ("apt-get", "-q", "-o", "APT::Get::AutomaticRemove=false", "-o", "DPkg::Lock::Timeout=120")
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
TIMEOUT_S = 1800.0  # removal on a slow disk, with the triggers of other packages


def look():
    """State of every package that dpkg knows."""
    native = run(["dpkg", "--print-architecture"]).stdout.strip()
    listed = run(["dpkg-query", "-W", "-f", "${Package} ${Architecture} ${db:Status-Status}\n"]).stdout
    return packages.states(listed, native)


def recorded(path):
    try:
        return dict(before.parse(read_text(path), "owned_packages").get("packages", {}))
    except ValueError as error:
        raise HostError(f"{path} {error}") from error


def note(names, path, check_mode):
    """The plan, what is on record then, and no notes."""
    now, known = look(), recorded(path)
    if all(now.get(name) == packages.INSTALLED for name in names):
        return packages.Plan(), sorted(known), []
    # In a dry run on a fresh machine there may be no package lists yet; apt itself says so when it installs.
    done = run(
        [*APT, "--simulate", "--no-install-recommends", "install", *names], check=not check_mode, timeout=TIMEOUT_S
    )
    after, plan = packages.noted(known, packages.brought(done.stdout, now), str(path))
    if plan.changed and not check_mode:
        write_text(path, before.render({"packages": after}))
    return plan, sorted(after), []


def take_back(path, check_mode):
    """The plan, what goes, and why packages stay."""
    now, known = look(), recorded(path)
    names = packages.candidates(known, now)
    simulated = run([*APT, "--simulate", "remove", *names], timeout=TIMEOUT_S).stdout if names else ""
    removal = packages.removal(known, now, simulated)
    if removal.refused:
        return removal.plan, [], [removal.refused]
    if not check_mode:
        if names:
            run([*APT, "--yes", "remove", *names], env=QUIET, timeout=TIMEOUT_S)
        if removal.purge:
            run(["dpkg", "--purge", *removal.purge], env=QUIET, timeout=TIMEOUT_S)
        path.unlink(missing_ok=True)
        made.tidy(path.parent, ())
    return removal.plan, list(names), []


def main():
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    options = module.params
    path = Path(options["record_path"])
    try:
        absent = options["state"] == "absent"
        done = take_back(path, module.check_mode) if absent else note(options["names"], path, module.check_mode)
    except HostError as error:
        module.fail_json(msg=f"owned_packages: {error}")
    plan, found, notes = done
    for text in notes:
        module.warn(text)
    module.exit_json(changed=plan.changed, diff=plan.diff(), packages=found, notes=notes)


if __name__ == "__main__":
    main()
