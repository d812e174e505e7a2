# SPDX-License-Identifier: BSD-3-Clause
"""What people type behind `pull` and `build`: swapped words, options that cannot be heeded, paths, times of files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge.errors import InvalidReference, NoMatchingPlatform, OutputExists, UsageError
from tests.builders.images import add_rich_image
from tests.builders.rows import each_row
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as served:
        add_rich_image(served)
        yield served


@each_row("reference", ["host:sh", "docker-daemon:a:1", "library:a/b/c", "ubuntu:22.04", "127.0.0.1:1/team/a:1"])
def test_reference_in_the_place_of_the_output_is_explained(tmp_path: Path, reference: str) -> None:
    done = kedge("pull", reference, "tools.sif", cache=tmp_path / "c", cwd=tmp_path, check=False)
    assert done.returncode == UsageError.exit_code
    assert_says(done.stderr, "pull/output-comes-first-pull", "tools.sif", reference)
    assert list(tmp_path.iterdir()) == []


def test_architecture_of_programs_of_this_machine_cannot_be_chosen(tmp_path: Path) -> None:
    other = "arm64" if os.uname().machine == "x86_64" else "amd64"
    done = kedge("pull", "--arch", other, tmp_path / "x.sif", "host:sh", cache=tmp_path / "c", check=False)
    assert done.returncode == NoMatchingPlatform.exit_code
    assert_says(done.stderr, "pull/packs-programs-host")
    wrong = kedge("pull", "--arch", "x86", tmp_path / "x.sif", "host:sh", cache=tmp_path / "c", check=False)
    assert wrong.returncode == InvalidReference.exit_code
    assert "unknown architecture 'x86'" in wrong.stderr
    assert not (tmp_path / "x.sif").exists()
    kedge("pull", "--arch", os.uname().machine, tmp_path / "x.sif", "host:sh", cache=tmp_path / "c")


def test_build_takes_an_archive_with_a_relative_path(tmp_path: Path, registry: FakeRegistry) -> None:
    here = {"cache": tmp_path / "c", "cwd": tmp_path}
    kedge("pull", "docker-archive:rel.tar", f"docker://{registry.host}/team/rich:1", **here)
    kedge("shim", "install", "--dir", "bin", **here)
    environment = {**os.environ, "KEDGE_CACHEDIR": str(tmp_path / "c")}
    for name, slashes in (("x.sif", ""), ("y.sif", "//")):
        argv = [str(tmp_path / "bin/apptainer"), "build", name, f"docker-archive:{slashes}rel.tar"]
        subprocess.run(argv, cwd=tmp_path, env=environment, check=True)
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("words", [["--link-mode", "hardlink"], ["--link-mode", "copy"], ["--sandbox"], []])
def test_a_pulled_file_has_the_time_of_the_pull(tmp_path: Path, words: list[str], registry: FakeRegistry) -> None:
    """make compares times: a target that stays older than what it depends on is pulled for ever."""
    reference = f"docker://{registry.host}/team/rich:1"
    kedge("pull", *words, tmp_path / "first", reference, cache=tmp_path / "c")
    for path in (tmp_path / "c").rglob("*.sif"):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    depends = tmp_path / "Makefile"
    depends.write_text("")
    kedge("pull", *words, tmp_path / "second", reference, cache=tmp_path / "c")
    assert (tmp_path / "second").stat().st_mtime >= depends.stat().st_mtime


@pytest.mark.parametrize(("words", "statuses"), [(["--last-wins"], [0, 0]), ([], [0, OutputExists.exit_code])])
def test_two_pulls_to_one_file_at_once(tmp_path, words, statuses, registry):
    """Workflow tools start them through the shims, and Apptainer refuses neither."""
    registry.server.fail("GET .*/manifests/", times=2, delay=3.0)  # until both have seen that there is no file
    pull = ("pull", *words, "x.sif", f"docker://{registry.host}/team/rich:1")
    with ThreadPoolExecutor(2) as pool:
        pulls = pool.map(lambda _: kedge(*pull, cache=tmp_path / "c", cwd=tmp_path, check=False), range(2))
    assert sorted(each.returncode for each in pulls) == statuses
    kedge("inspect", tmp_path / "x.sif", cache=tmp_path / "c")
