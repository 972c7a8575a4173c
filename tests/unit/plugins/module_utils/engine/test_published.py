# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every flag and variable that the sources publish is rendered with its value, or is on the list of deliberate differences."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest
import yaml

from ansible_collections.gb10.ring.plugins.module_utils.engine import gates, render_docker
from ansible_collections.gb10.ring.plugins.module_utils.engine.gate_claims import Seen, started
from ansible_collections.gb10.ring.plugins.module_utils.engine.profile import Profile
from ansible_collections.gb10.ring.tests.unit.fixtures.engine_groups import ENGINE, GROUPS, ROLE, cluster_manifests

PUBLISHED = sorted(path.stem for path in (ENGINE / "published").glob("*.yml") if path.stem in GROUPS)
SERVICES = {
    "vllm-tp3-ring-exl3": "llmkube-ring3-inferenceservice.yml",
    "vllm-tp2-pair-vision": "llmkube-pair-inferenceservice.yml",
}


def read(name):
    return yaml.safe_load((ENGINE / "published" / name).read_text(encoding="utf-8"))


def flags(words):
    """--name to its values; [] for a flag that has none."""
    found, last = {}, None
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            last = found.setdefault(name, [])
            last += [value] if has_value else []
        elif last is not None:
            last.append(word)
    return found


def same(found, published):
    """Whether a rendered value says what was published. A placeholder of the source asks for some value."""
    if isinstance(published, dict):
        value = json.loads(found) if isinstance(found, str) else found
        return all(key in value and same(value[key], wanted) for key, wanted in published.items())
    if isinstance(published, (list, bool)) or isinstance(found, bool):
        return found == published
    if isinstance(published, str) and "<" in published:
        pattern = ".+".join(re.escape(part) for part in re.split(r"<[^>]*>", published))
        return re.fullmatch(pattern, str(found)) is not None
    try:
        return float(found) == float(published)
    except (TypeError, ValueError):
        return str(found) == str(published)


class Rendered:
    """What rank 0 of a deployment is given, by kind and name."""

    def __init__(self, name):
        self.profile, specs = GROUPS[name].specs()
        self.spec = specs[0]
        self.flags = flags(self.spec.argv)
        rows = render_docker.command(self.spec) if self.spec.container else []
        self.docker = flags([word for row in rows for word in row])

    def get(self, kind, name):
        return getattr(self, f"_{kind}")(name)

    def _flags(self, name):
        name, _dot, inner = name.partition(".")
        if name not in self.flags:
            return None
        value = self.flags[name] or [True]
        value = value[0] if len(value) == 1 else value
        return json.loads(value)[inner] if inner else value

    def _env(self, name):
        return self.spec.env.get(name)

    def _container(self, name):
        value = self.docker.get(name, [None])[0]
        return value.rpartition(":")[2] if name == "device" and value else value

    def _limits(self, name):
        value = self.docker.get(name)
        return [item for item in value if not item.startswith("nofile")] if name == "ulimit" else value and value[0]

    def _mounts(self, target):
        by_target = {mount.target: mount for mount in self.spec.container.mounts}
        mount = by_target.get(target)
        return {"source": mount.source, "read_only": mount.read_only} if mount else None

    def _pins(self, name):
        return self.spec.pins.get(name)

    def _rendezvous(self, name):
        return self.spec.rendezvous[name]

    def _single(self, kind):
        return {
            "image": self.spec.container and self.spec.container.image,
            "entrypoint": self.spec.argv[0],
            "devices": ",".join(self.spec.gid_devices),
        }[kind]


def entries(published):
    """(origin, kind, name, value) of everything that a source publishes."""
    for part in published:
        for kind, values in part.items():
            if kind in ("image", "entrypoint", "devices"):
                yield part["origin"], "single", kind, values
            elif kind != "origin":
                for name, value in values.items():
                    yield part["origin"], kind, name, value.rpartition(":")[2] if name == "device" else value


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_value_is_rendered_or_a_deliberate_difference(name):
    content = read(f"{name}.yml")
    rendered, reasons, used = Rendered(name), content["differences"], set()
    wrong = []
    for origin, kind, key, value in entries(content["published"]):
        found = rendered.get(kind, key)
        listed = next((entry for entry in (f"{key}={value}", key) if entry in reasons), None)
        if found is not None and same(found, value):
            wrong += [f"{key} is rendered as published, but listed as a difference"] if listed else []
        elif listed:
            used.add(listed)
        else:
            wrong.append(f"{key}: published {value!r} ({origin}), rendered {found!r}")
    wrong += [f"{entry} is listed as a difference, but no source publishes it" for entry in set(reasons) - used]
    assert wrong == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_log_of_every_published_profile_tells_of_its_transport(name):
    """A profile whose log has no line of NCCL could fall back to TCP unseen."""
    for spec in GROUPS[name].specs()[1]:
        found = {check.id: check for check in gates.checks("spark1", started(spec.to_dict()), Seen())}
        assert found["engine.transport"].found == "no line of NCCL that says what it uses"
        assert "not proven" not in found.get("engine.subnet_routing", found["engine.transport"]).found


def test_every_published_profile_has_its_values():
    profiles = {path.stem for path in (ROLE / "profiles").glob("*.yml")}
    assert set(PUBLISHED) == profiles - {"lab", "lab-vllm-cpu"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_comparison_notices_a_changed_value(name):
    """The test above is worth nothing if it cannot fail: every flag and variable, altered, is seen."""
    content, rendered = read(f"{name}.yml"), Rendered(name)
    noticed = 0
    for _origin, kind, key, value in entries(content["published"]):
        found = rendered.get(kind, key)
        if kind in ("flags", "env") and found is not None and same(found, value) and "<" not in str(value):
            assert not same("altered" if not isinstance(value, dict) else {}, value), key
            noticed += 1
    assert noticed > 10


def leaves(value, path=()):
    """Every key path of nested data to its value."""
    if isinstance(value, dict) and value:
        return {key: leaf for name, item in value.items() for key, leaf in leaves(item, (*path, str(name))).items()}
    if isinstance(value, list) and value:
        return {
            key: leaf for number, item in enumerate(value) for key, leaf in leaves(item, (*path, str(number))).items()
        }
    return {".".join(path): value}


def comparable(resource):
    """The resource with arguments and variables by name, JSON arguments as data, and without the order of volumes."""
    spec = dict(resource["spec"])
    given = {name: values or [True] for name, values in flags(spec["extraArgs"]).items()}
    spec["extraArgs"] = {
        name: json.loads(values[0]) if str(values[0]).startswith("{") else values for name, values in given.items()
    }
    spec["env"] = {item["name"]: item["value"] for item in spec["env"]}
    return leaves({**resource, "spec": spec})


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_inference_service_equals_the_published_one_key_by_key(name):
    published, ours = read(SERVICES[name]), cluster_manifests(name)["40-inferenceservice.yaml"][0]
    published["metadata"].setdefault("namespace", "default")
    wanted, found = comparable(published), comparable(ours)
    differing = {key for key in {*wanted, *found} if wanted.get(key) != found.get(key)}
    assert differing == set(read("cluster-differences.yml")[name])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_arguments_stand_in_the_published_order(name):
    published, ours = read(SERVICES[name]), cluster_manifests(name)["40-inferenceservice.yaml"][0]
    assert list(flags(ours["spec"]["extraArgs"])) == list(flags(published["spec"]["extraArgs"]))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_model_equals_the_published_one_key_by_key(name):
    """With its list of files, of which only the order is ours."""
    published = read(SERVICES[name].replace("inferenceservice", "model"))
    (ours,) = cluster_manifests(name)["20-model.yaml"]
    published["metadata"].setdefault("namespace", "default")
    for resource in (published, ours):
        resource["spec"]["files"] = sorted(resource["spec"].get("files", ()))
    wanted, found = leaves(published), leaves(ours)
    differing = {key for key in {*wanted, *found} if wanted.get(key) != found.get(key)}
    assert differing == set(read("cluster-differences.yml")[f"{name} Model"])


def test_the_published_model_of_three_names_its_54_files():
    files = read("llmkube-ring3-model.yml")["spec"]["files"]
    assert len(set(files)) == len(files) == 54
    assert "files" not in read("llmkube-pair-model.yml")["spec"]


DOCS = ROLE.parents[1] / "docs"


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_profile_has_a_page_that_the_overview_names(name):
    assert f"`{name}` |" in (DOCS / "engine.md").read_text(encoding="utf-8")
    page = (DOCS / f"engines/{name}.md").read_text(encoding="utf-8")
    assert all(
        heading in page for heading in ("## Needs", "## Published numbers", "## Deliberate differences", "Source")
    )


def test_every_key_of_a_profile_is_documented():
    text = (DOCS / "engine.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(Profile) if f"`{field.name}`" not in text] == []


def test_differences_have_reasons():
    reasons = [*read("cluster-differences.yml").values(), *(read(f"{name}.yml")["differences"] for name in PUBLISHED)]
    assert all(len(reason) > 20 for group in reasons for reason in group.values())


def test_profiles_that_are_published_with_vision_are_shown_a_picture():
    """LLMKube's pair and tonyd2wild's ring serve a vision tower; the SGLang write-up has "tools, images", and asks about one."""
    seeing = {name for name, group in GROUPS.items() if group.read().get("sees")}
    assert seeing == {"vllm-tp2-pair-vision", "vllm-tp3-ring-docker", "sglang-tp4-engram"}
    limited = {name for name, group in GROUPS.items() if "limit-mm-per-prompt" in group.read().get("options", {})}
    assert limited <= seeing
