# SPDX-License-Identifier: BSD-3-Clause
"""What --scratch and --workdir come to."""

from __future__ import annotations

import os
import stat

import pytest

from kedge.container.facts import Bind, HostFacts
from kedge.container.mounts.scratch import plan_scratch
from kedge.container.options import RunOptions
from kedge.errors import FileProblem, UsageError
from kedge.system.views import TableView
from tests.builders.ordinary_user import as_ordinary_user
from tests.builders.rows import each_row


def plan(tmp_path, **options):
    host = HostFacts(view=TableView({}), environ={}, cwd=str(tmp_path))
    return plan_scratch(RunOptions(**options), host)


def test_scratch_is_in_memory_without_a_work_folder(tmp_path) -> None:
    found = plan(tmp_path)
    assert (found.binds, found.memory, found.folders, found.workdir) == ([], [], [], "")
    found = plan(tmp_path, scratch=["/a,/b/c/", "/d"])
    assert (found.memory, found.binds) == (["/a", "/b/c", "/d"], [])
    assert plan(tmp_path, workdir=".").folders == []


def test_scratch_is_below_the_work_folder_where_one_is_given(tmp_path):
    found = plan(tmp_path, scratch=["/a/b", "/a/c"], workdir=".")
    place = f"{tmp_path}/scratch"
    assert found.binds == [
        Bind(f"{place}/a/b", "/a/b", origin="--scratch"),
        Bind(f"{place}/a/c", "/a/c", origin="--scratch"),
    ]
    assert [path for path, _ in found.folders] == [place, f"{place}/a", f"{place}/a/b", f"{place}/a/c"]
    assert found.memory == []


def test_contain_finds_its_folders_below_the_work_folder(tmp_path):
    (tmp_path / "work").mkdir()
    found = plan(tmp_path, workdir="work", contain=True)
    found.make_folders()
    found.make_folders()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "work").iterdir()}
    assert modes == {"tmp": 0o1777, "var_tmp": 0o1777, "home": 0o700}
    assert found.workdir == f"{tmp_path}/work"


@each_row("options", [{"no_home": True}, {"home": "/x"}])
def test_no_home_is_made_below_the_work_folder_where_none_is_used(tmp_path, options):
    found = plan(tmp_path, workdir=".", contain=True, **options)
    assert [path for path, _ in found.folders] == [f"{tmp_path}/tmp", f"{tmp_path}/var_tmp"]


@each_row("path", ["a", "/", "//", "/a/../b", "../a", "."])
def test_a_place_that_cannot_be_is_refused(tmp_path, path):
    with pytest.raises(UsageError, match="absolute path"):
        plan(tmp_path, scratch=[path])


def test_a_work_folder_that_is_not_there_is_refused_with_the_remedy_and_a_file_in_the_way_is_named(tmp_path) -> None:
    with pytest.raises(FileProblem, match="not a directory") as caught:
        plan(tmp_path, scratch=["/a"], workdir="missing")
    assert f"mkdir -p {tmp_path}/missing" in str(caught.value.hint)
    (tmp_path / "scratch").write_text("")
    found = plan(tmp_path, scratch=["/a"], workdir=".")
    with pytest.raises(FileProblem, match="and --workdir needs a directory there"):
        found.make_folders()


def test_a_link_of_the_user_s_leads_to_the_scratch_directory_and_one_inside_another_does_not(tmp_path):
    """What lies in a scratch directory a program in a container may have put there."""
    for name in ("elsewhere", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "scratch/a").symlink_to("../elsewhere")
    plan(tmp_path, scratch=["/a"], workdir=".").make_folders()
    (tmp_path / "elsewhere/b").symlink_to("/etc")
    with pytest.raises(FileProblem, match="scratch/a/b is a file or symlink"):
        plan(tmp_path, scratch=["/a/b"], workdir=".").make_folders()


@as_ordinary_user
def test_a_work_folder_that_may_not_be_written_is_refused(tmp_path):
    (tmp_path / "work").mkdir()
    for mode in (0o500, 0o600):
        (tmp_path / "work").chmod(mode)
        with pytest.raises(FileProblem, match="no write permission for --workdir"):
            plan(tmp_path, scratch=["/a"], workdir="work")
    (tmp_path / "work").chmod(0o700)


def test_scratch_directories_are_open_to_the_group_whatever_the_umask(tmp_path):
    found = plan(tmp_path, scratch=["/a/b/"], workdir=".")
    before = os.umask(0o077)
    try:
        found.make_folders()
    finally:
        os.umask(before)
    made = [tmp_path / name for name in ("scratch", "scratch/a", "scratch/a/b")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o750] * 3
    assert found.binds == [Bind(f"{tmp_path}/scratch/a/b", "/a/b", origin="--scratch")]
