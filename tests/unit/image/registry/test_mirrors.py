# SPDX-License-Identifier: BSD-3-Clause
"""registries.conf: which places are asked for a repository, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.errors import AccessDenied, InvalidSetting
from kedge.image.registry.mirrors import Endpoint, Registries, load_registries
from tests.builders.rows import each_row


def load(tmp_path: Path, text: str) -> Registries:
    path = tmp_path / "registries.conf"
    path.write_text(text)
    return load_registries({"CONTAINERS_REGISTRIES_CONF": str(path)}, tmp_path, tmp_path / "etc")


def places(registries: Registries, registry: str, repository: str, *, by_digest: bool = False) -> list[str]:
    found = registries.list_endpoints(registry, repository, by_digest=by_digest)
    return [f"{each.registry}/{each.repository}" for each in found]


def test_mirrors_none_is_the_registry_itself(tmp_path: Path) -> None:
    registries = load_registries({}, tmp_path, tmp_path / "etc")
    assert registries.list_endpoints("nvcr.io", "nvidia/cuda") == [Endpoint("nvcr.io", "nvidia/cuda")]
    assert Endpoint("docker.io", "library/x").host == "registry-1.docker.io"
    assert Endpoint("nvcr.io", "x").host == "nvcr.io"


MIRRORED = """
unqualified-search-registries = ["docker.io"]
[[registry]]
location = "docker.io"
[[registry.mirror]]
location = "mirror.site:5000/hub"
[[registry.mirror]]
location = "second.site"
insecure = true
[[registry]]
prefix = "docker.io/private"
location = "harbor.site/private"
[[registry]]
prefix = "blocked.example"
blocked = true
[[registry]]
prefix = "*.wild.example"
location = "cache.site"
"""


def test_mirrors_are_asked_first_and_the_registry_last(tmp_path: Path) -> None:
    registries = load(tmp_path, MIRRORED)
    assert registries.list_endpoints("docker.io", "library/ubuntu") == [
        Endpoint("mirror.site:5000", "hub/library/ubuntu", False, True),
        Endpoint("second.site", "library/ubuntu", True, True),
        Endpoint("docker.io", "library/ubuntu"),
    ]


def test_mirrors_longest_prefix_wins_and_relocates(tmp_path: Path) -> None:
    registries = load(tmp_path, MIRRORED)
    assert registries.list_endpoints("docker.io", "private/x") == [Endpoint("harbor.site", "private/x", False, True)]
    assert places(registries, "docker.io", "privateer/x")[-1] == "docker.io/privateer/x"
    assert places(registries, "a.wild.example", "x/y") == ["cache.site/x/y"]
    assert places(registries, "wild.example", "x/y") == ["wild.example/x/y"]


def test_mirrors_blocked_prefix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessDenied, match=r"blocks blocked\.example/x") as caught:
        load(tmp_path, MIRRORED).list_endpoints("blocked.example", "x")
    assert "registries.conf" in caught.value.context["file"]


def test_mirrors_by_digest_only(tmp_path: Path) -> None:
    old = '[[registry]]\nlocation="r.io"\nmirror-by-digest-only=true\n[[registry.mirror]]\nlocation="m.io"\n'
    new = (
        '[[registry]]\nlocation="r.io"\n[[registry.mirror]]\nlocation="d.io"\npull-from-mirror="digest-only"\n'
        '[[registry.mirror]]\nlocation="t.io"\npull-from-mirror="tag-only"\n'
    )
    assert places(load(tmp_path, old), "r.io", "x") == ["r.io/x"]
    assert places(load(tmp_path, old), "r.io", "x", by_digest=True) == ["m.io/x", "r.io/x"]
    assert places(load(tmp_path, new), "r.io", "x") == ["t.io/x", "r.io/x"]
    assert places(load(tmp_path, new), "r.io", "x", by_digest=True) == ["d.io/x", "r.io/x"]


def test_mirrors_files_of_system_and_user(tmp_path: Path) -> None:
    system, user = tmp_path / "etc", tmp_path / ".config/containers"
    for folder in (system / "registries.conf.d", user / "registries.conf.d"):
        folder.mkdir(parents=True)
    (system / "registries.conf").write_text('[[registry]]\nlocation="a.io"\n[[registry.mirror]]\nlocation="sys.io"\n')
    (system / "registries.conf.d/10.conf").write_text('[[registry]]\nprefix="b.io"\nlocation="drop.io"\n')
    registries = load_registries({}, tmp_path, system)
    assert places(registries, "a.io", "x") == ["sys.io/x", "a.io/x"]
    assert places(registries, "b.io", "x") == ["drop.io/x"]
    (user / "registries.conf").write_text("")  # replaces the system's main file, not its drop-ins
    (user / "registries.conf.d/10.conf").write_text('[[registry]]\nprefix="b.io"\nlocation="user.io"\n')
    registries = load_registries({}, tmp_path, system)
    assert places(registries, "a.io", "x") == ["a.io/x"]
    assert places(registries, "b.io", "x") == ["user.io/x"]


def test_mirrors_old_form_is_noted_and_ignored(tmp_path: Path) -> None:
    registries = load(tmp_path, '[registries.search]\nregistries = ["docker.io"]\n')
    assert registries.rules == ()
    assert "version 1" in registries.notes[0]


@each_row(
    "text",
    [
        *("not toml [", 'registry = "x"', "[[registry]]\ninsecure = true", '[[registry]]\nlocation = "https://r.io"'),
        *('[[registry]]\nlocation = "r.io"\ninsecure = "yes"', '[[registry]]\nlocation = "r.io"\nmirror = 3'),
        '[[registry]]\nlocation = "r.io"\n[[registry.mirror]]\ninsecure = true',
        '[[registry]]\nlocation = "r.io"\n[[registry.mirror]]\nlocation = "m.io"\npull-from-mirror = "never"',
        "[[registry]]\nlocation = 5",
    ],
)
def test_mirrors_broken_file_is_named_with_a_way_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"registries\.conf") as caught:
        load(tmp_path, text)
    assert "/dev/null" in (caught.value.hint or "")
