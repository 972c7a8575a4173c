# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of gb10.ring.engine_manifests: renders the group and writes the files. The documentation is in plugins/modules."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gb10.ring.plugins.module_utils.checkpoint import tp_config
from ansible_collections.gb10.ring.plugins.module_utils.engine import kubernetes
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse
from ansible_collections.gb10.ring.plugins.module_utils.engine.spec import ModelPlace, Node, SpecError, build
from ansible_collections.gb10.ring.plugins.module_utils.fabric.nccl import usable
from ansible_collections.gb10.ring.plugins.module_utils.host import HostError, read_text, write_text
from ansible_collections.gb10.ring.plugins.module_utils.plan import Change, Plan

HEADER = "# Managed by gb10.ring (action engine_manifests): changes here are overwritten.\n"
SPEC = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "profile": {"type": "dict", "required": True},
    "directory": {"type": "path", "required": True},
    "model_root": {"type": "path", "required": True},
    "revision": {"type": "str", "default": ""},
    "namespace": {"type": "str", "default": "default"},
    "source": {"type": "str", "default": ""},
    "source_secret": {"type": "str", "default": ""},
    "files": {"type": "list", "elements": "str", "default": []},
    "capacity": {"type": "str", "default": "600Gi"},
}
NODE_VARIABLES = {
    "rank": "ring_rank",
    "size": "ring_size",
    "shape": "ring_shape",
    "fabric_ports": "fabric_ports",
    "management_interface": "management_interface",
    "management_address": "management_address",
    "head_address": "ring_head_address",
}
NODE_NAME, CLAIM, LOOKED_AT = "engine_kubernetes_node", "engine_kubernetes_claim", "engine_fabric_info"


class Dumper(yaml.SafeDumper):
    """Block style, without anchors, which kubectl reads but people do not."""

    def ignore_aliases(self, data):  # noqa: ARG002
        return True

    def increase_indent(self, flow=False, indentless=False):  # noqa: ARG002
        return super().increase_indent(flow, False)


def _block(dumper, value):
    """Programs stay readable."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Dumper.add_representer(str, _block)


def member(hostvars, host, head):
    """One node, from its variables. Raises SpecError that names those it lacks."""
    given = hostvars[host]
    missing = [name for name in NODE_VARIABLES.values() if name not in given]
    if missing:
        raise SpecError(
            f"{host}: no {', '.join(missing)}; list the node in the topology file (plugin gb10.ring.topology)"
        )
    found = (given.get(LOOKED_AT) or {}).get("ports")
    own = {key: given[name] for key, name in NODE_VARIABLES.items()}
    if found is not None and not usable(own["fabric_ports"], found):
        found = None  # a dry run of a node whose fabric is not there yet
    return Node(head_fabric_ports=hostvars[head]["fabric_ports"], found=found, **own)


def manifests(hostvars, options):
    """Resources by file name. Raises ProfileError, SpecError, ManifestError."""
    hosts = sorted(options["hosts"], key=lambda host: hostvars[host].get("ring_rank", 0))
    profile = parse(options["profile"], len(hosts))
    if profile.renderer != "kubernetes":
        raise SpecError(
            f"profile {profile.name} has renderer {profile.renderer}, expected kubernetes (engine_renderer)"
        )
    if not options["source"] and not options["revision"]:
        raise SpecError("revision is empty: name the one that is staged on the nodes (engine_revision), or a source")
    path = kubernetes.engine_path(options["source"], options["revision"])
    place = ModelPlace(
        options["model_root"],
        options["revision"],
        engine_path=path,
        engine_root=kubernetes.engine_root(options["source"]),
    )
    cluster = kubernetes.Cluster(
        namespace=options["namespace"],
        nodes=tuple(str(hostvars[host].get(NODE_NAME, host)) for host in hosts),
        claims=tuple(
            str(hostvars[host].get(CLAIM, f"{profile.kubernetes.get('claim_prefix')}-{host}")) for host in hosts
        ),
        source=options["source"],
        secret=options["source_secret"],
        files=tuple(options["files"]),
        capacity=options["capacity"],
    )
    specs = [build(profile, member(hostvars, host, hosts[0]), place) for host in hosts]
    return kubernetes.manifests(profile, specs, cluster, Path(tp_config.__file__).read_text(encoding="utf-8"))


def plain(documents):
    """Without Ansible's own texts, which carry where they come from and which YAML cannot write."""
    return json.loads(json.dumps(documents))


def text(documents):
    """One file."""
    return HEADER + yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, explicit_start=True, width=160)


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(argument_spec=SPEC)
        directory = Path(self._loader.path_dwim(options["directory"]))
        try:
            found = plain(manifests(task_vars["hostvars"], options))
            files = {str(directory / name): text(documents) for name, documents in found.items()}
            changes = [
                Change(path, read_text(path) or "", wanted, "the group's resources")
                for path, wanted in files.items()
                if read_text(path) != wanted
            ]
            if not self._task.check_mode:
                for change in changes:
                    write_text(change.what, change.after)
        except (HostError, ProfileError, SpecError, kubernetes.ManifestError) as error:
            raise AnsibleActionFail(f"engine manifests: {error}") from None  # Ansible would print the cause again
        plan = Plan(tuple(changes))
        result.update(
            changed=plan.changed,
            diff=plan.diff(),
            paths=sorted(files),
            resources=[found[name] for name in sorted(found)],
        )
        return result
