# SPDX-License-Identifier: BSD-3-Clause
"""Homes, shared directories and places of secrets: by path, by inode, through links, and where variables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.system.host.private_places import SECRETS, SHARED, PrivatePlaces, find_homes
from tests.builders.rows import each_row
from tests.wording import assert_reads

GUIDE = Path(__file__).parents[4] / "docs/guides/build.md"


@pytest.fixture(name="home")
def make_home(tmp_path: Path) -> Path:
    home = tmp_path / "homes/me"
    (home / "project").mkdir(parents=True)
    return home


def open_places(home: Path, **variables: str) -> PrivatePlaces:
    return PrivatePlaces({"HOME": str(home), **variables})


@pytest.mark.parametrize("row", SECRETS)
def test_every_row_is_a_place_of_secrets(home: Path, row: str) -> None:
    (home / row).mkdir(parents=True)
    (home / row / "file").touch()
    places = open_places(home)
    for path in (home / row, home / row / "file"):
        assert places.judge(str(path)).secret == str(home / row)
    assert not places.judge(str((home / row).parent)).secret
    (home / "project" / row).mkdir(parents=True)  # of a project, not of a home
    assert not places.judge(str(home / "project" / row)).secret
    assert places.list_secrets(str(home)) == [str(home / row)]
    assert places.list_secrets(str(home / "project")) == []


@each_row("row", SECRETS)
def test_guide_lists_every_row(row: str) -> None:
    assert f"`{row}`" in GUIDE.read_text()


def test_rows_that_come_later_count(home: Path) -> None:
    places = open_places(home)
    (home / ".ssh").mkdir()
    assert places.judge(f"{home}/.ssh").secret == f"{home}/.ssh"


def test_place_behind_a_link_is_the_same(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/keys").mkdir(parents=True)
    (tmp_path / "elsewhere/config/gcloud").mkdir(parents=True)
    (home / ".ssh").symlink_to(tmp_path / "elsewhere/keys")
    (home / ".config").symlink_to(tmp_path / "elsewhere/config")
    places = open_places(home)
    assert places.judge(f"{tmp_path}/elsewhere/keys").secret
    assert places.judge(f"{tmp_path}/elsewhere/config/gcloud").secret
    assert not places.judge(f"{tmp_path}/elsewhere/config").secret


def test_variables_name_places(home: Path, tmp_path: Path) -> None:
    for name in ("kube", "config/kedge/x", "docker/config.json", "docker/other", "hf/token"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    places = open_places(
        home,
        KUBECONFIG=f"{tmp_path}/kube",
        XDG_CONFIG_HOME=f"{tmp_path}/config",
        DOCKER_CONFIG=f"{tmp_path}/docker",
        HF_HOME=f"{tmp_path}/hf",
        XDG_RUNTIME_DIR="/tmp",
        GNUPGHOME=str(tmp_path),
    )
    for name in ("kube", "config/kedge/x", "docker/config.json", "hf/token"):
        assert places.judge(f"{tmp_path}/{name}").secret, name
    for name in ("docker/other", "config", "hf"):  # GNUPGHOME is above a home, and cannot be meant
        assert not places.judge(f"{tmp_path}/{name}").secret, name


def test_directories_that_are_too_much(home: Path, tmp_path: Path) -> None:
    places = open_places(home)
    assert_reads(places.explain_width("/"), "base/root-host")
    assert places.explain_width(str(home)) == "it is your home"
    for path in (home.parent, tmp_path):
        assert_reads(places.explain_width(str(path)), "base/your-home")
    for path in SHARED:
        if Path(path).is_dir() and not str(tmp_path).startswith(path):
            assert places.explain_width(path) == "all users share it"
    (tmp_path / "other").mkdir()
    for path in (home / "project", tmp_path / "other", tmp_path / "missing"):
        assert places.explain_width(str(path)) == ""


def test_homes_have_every_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    homes = find_homes({"HOME": f"{tmp_path}/link"})
    assert {f"{tmp_path}/link/", f"{tmp_path}/real/"} <= set(homes)
    for value in ("/", "/usr", "relative", "", f"{tmp_path}/missing"):
        assert f"{value.rstrip('/')}/" not in find_homes({"HOME": value})
