# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

DOCUMENTATION = r"""
name: engine_profile
short_description: Read, check and complete an engine profile
version_added: "0.1.0"
author:
  - gb10.ring contributors (@gb10-ring)
description:
  - Reads a profile of the engine role by its name, or a YAML file of one's own by its path, from the controller.
  - Checks every key and fails with all problems of the file in one message. The keys are in C(docs/engine.md).
options:
  _terms:
    description:
      - Names of profiles that the engine role has, or paths that contain a C(/) or end in C(.yml).
      - A relative path is looked up from the playbook's directory.
    type: list
    elements: str
    required: true
  size:
    description: Number of nodes in the group. It replaces V(ring_size) in C(tensor_parallel), and another number there is refused.
    type: int
    required: true
  overrides:
    description:
      - Keys of a profile whose values replace the file's. C(options), C(env) and other mappings are merged key by key; a null takes one away.
    type: dict
    default: {}
  renderer:
    description: Renderer in place of the profile's. When empty, the profile's, or that of O(overrides).
    type: str
    default: ""
    choices: ["", venv, docker, podman, kubernetes]
"""

EXAMPLES = r"""
- name: Show how the lab's engine is run
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.ring.engine_profile', 'lab', size=3) }}"

- name: Show a published engine with a shorter context
  ansible.builtin.debug:
    msg: "{{ lookup('gb10.ring.engine_profile', 'vllm-tp3-ring-exl3', size=3, overrides={'options': {'max-model-len': 131072}}) }}"
"""

RETURN = r"""
_list:
  description: The profiles, with the default of each key that a file leaves out.
  type: list
  elements: dict
"""

from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.yaml import yaml_load
from ansible.plugins.lookup import LookupBase

from ansible_collections.gb10.ring.plugins.module_utils.engine.options import merged
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import ProfileError, parse

PROFILES = Path(__file__).resolve().parents[2] / "roles/engine/profiles"


class LookupModule(LookupBase):
    """lookup('gb10.ring.engine_profile', NAME_OR_PATH, size=N)"""

    def run(self, terms, variables=None, **kwargs):
        self.set_options(var_options=variables, direct=kwargs)
        size, overrides, renderer = (self.get_option(name) for name in ("size", "overrides", "renderer"))
        overrides = {**overrides, **({"renderer": renderer} if renderer else {})}
        return [self._read(str(term), size, overrides) for term in terms]

    def _read(self, term, size, overrides):
        path = self._path(term)
        try:
            # With libyaml a tenth of the time: roles evaluate this again for each variable that comes from it.
            values = yaml_load(path.read_text(encoding="utf-8"))
            if isinstance(values, dict):
                values = merged(values, overrides)
            return parse(values, size, f"engine_profile {path}").to_dict()
        except OSError as error:
            own = ", ".join(sorted(entry.stem for entry in PROFILES.glob("*.yml")))
            raise AnsibleError(
                f"engine_profile is {term!r}: cannot read {path}: {error.strerror}. Allowed: a profile of the engine role ({own}), "
                "or the path of a YAML file"
            ) from None  # Ansible would print the cause again
        except yaml.YAMLError as error:
            raise AnsibleError(f"engine_profile {path}: {error}") from None
        except ProfileError as error:
            raise AnsibleError(str(error)) from None

    def _path(self, term):
        if "/" in term or term.endswith((".yml", ".yaml")):
            return Path(self._loader.path_dwim(term))
        return PROFILES / f"{term}.yml"
