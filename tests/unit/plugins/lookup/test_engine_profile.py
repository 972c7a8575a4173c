# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gb10.ring.plugins.lookup.engine_profile import PROFILES, LookupModule
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import GROUPS


class Lookup(LookupModule):
    """The lookup without Ansible's plugin loader, which reads the options' documentation."""

    def set_options(self, task_keys=None, var_options=None, direct=None):
        self.given = direct

    def get_option(self, option, hostvars=None):
        return self.given.get(option, {"overrides": {}, "renderer": ""}.get(option))


def read(*terms, base=None, **options):
    loader = DataLoader()
    if base:
        loader.set_basedir(str(base))
    return Lookup(loader=loader).run(list(terms), variables={}, **options)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.yml")))
def test_every_profile_of_the_role_holds(name):
    group = GROUPS[name]
    size = len(group.topology["nodes"])
    (profile,) = read(name, size=size, overrides=group.overrides)
    assert profile["name"] == name
    assert profile["tensor_parallel"] == size


@pytest.mark.parametrize("name", ["sglang-tp4-engram", "vllm-tp2-pair-vision", "vllm-tp3-ring-docker"])
def test_an_image_that_is_published_by_a_tag_needs_the_users_digest(name):
    with pytest.raises(AnsibleError) as error:
        read(name, size=len(GROUPS[name].topology["nodes"]))
    assert "a tag that can move; renderer docker runs images by digest only. Cure: engine_overrides" in str(error.value)


def test_overrides_are_merged_key_by_key():
    over = {"options": {"max-num-seqs": None, "block-size": 64}, "env": {"MAX_JOBS": None, "X": 1}, "shm_gib": 4}
    (profile,) = read("lab", size=3, overrides=over)
    assert "max-num-seqs" not in profile["options"]
    assert (profile["options"]["block-size"], profile["options"]["max-model-len"]) == (64, 131072)
    assert (profile["env"]["MAX_JOBS"], profile["env"]["X"], profile["shm_gib"]) == ("", "1", 4)


@pytest.mark.parametrize(("renderer", "expected"), [("", "docker"), ("podman", "podman"), ("kubernetes", "kubernetes")])
def test_the_renderer_replaces_the_profiles(renderer, expected):
    assert read("vllm-tp3-ring-exl3", size=3, renderer=renderer)[0]["renderer"] == expected


def test_a_file_of_the_users(tmp_path):
    (tmp_path / "mine.yml").write_text("name: mine\nexecutable: /x\nserved_model_name: m\ntensor_parallel: 2\n")
    assert read("mine.yml", base=tmp_path, size=2)[0]["port"] == 8000
    assert read(str(tmp_path / "mine.yml"), size=2)[0]["name"] == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            None,
            "No such file or directory. Allowed: a profile of the engine role (lab, lab-vllm-cpu, sglang-tp4-engram,",
        ),
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
