# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gb10.ring.plugins.lookup.engine_profile import PROFILES, LookupModule


class Lookup(LookupModule):
    """The lookup without Ansible's plugin loader, which reads the options' documentation."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        self.given = direct

    def get_option(self, option, hostvars=None):
        return self.given[option]


def read(*terms, base=None, **options):
    loader = DataLoader()
    if base:
        loader.set_basedir(str(base))
    return Lookup(loader=loader).run(list(terms), variables={}, **options)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yml")))
def test_every_profile_of_the_role_holds(name):
    (profile,) = read(name, size=3)
    assert profile["name"] == name
    assert profile["tensor_parallel"] == 3


def test_a_file_of_the_users(tmp_path):
    (tmp_path / "mine.yml").write_text("name: mine\nexecutable: /x\nserved_model_name: m\ntensor_parallel: 2\n")
    assert read("mine.yml", base=tmp_path, size=2)[0]["port"] == 8000
    assert read(str(tmp_path / "mine.yml"), size=2)[0]["name"] == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory. Allowed: a profile of the engine role (lab), or the path of a YAML file"),
        ("name: [", "while parsing"),
        ("name: x\n", "executable is missing"),
        (
            "name: x\nexecutable: /x\nserved_model_name: m\ntensor_parallel: 4\n",
            "tensor_parallel is 4, the group has 3 nodes",
        ),
    ],
)
def test_refusals_name_the_file(tmp_path, text, says):
    path = tmp_path / "p.yml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AnsibleError) as error:
        read(str(path), size=3)
    assert says in str(error.value)
    assert str(path) in str(error.value)
