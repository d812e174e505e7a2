# SPDX-License-Identifier: BSD-3-Clause
"""A link waits under a name that can be guessed, and wants kedge to write through it.

In a shared directory another user left it; in a project a contained program did, which has only that directory, and
whose output would go into the user's start-up files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.image.registry.credentials import CredentialSources
from tests.builders.containers import Runner, give_to, make_sandbox
from tests.requirements import require_root


@pytest.fixture
def precious(runner: Runner) -> Iterator[Path]:
    """A file of the user's that no attack may change."""
    path = runner.home / "precious"
    path.write_text("as it was\n")
    if os.getuid() == 0:
        os.chown(path, runner.uid, runner.uid)
    yield path
    assert path.read_text() == "as it was\n"


def test_the_output_of_a_local_job_is_not_written_through_a_link(runner: Runner, precious: Path) -> None:
    project = runner.folder / "project"
    project.mkdir(exist_ok=True)
    image = give_to(runner, make_sandbox(runner.folder / "image"))
    give_to(runner, project)
    plant = "for id in 1 2 3 4 5 6 7 8 9; do ln -s $0 sh-$id.out; done"
    words = ("exec", "--contain", "--bind", str(project), "--pwd", str(project), str(image), "sh", "-c")
    runner.read(*words, plant, str(precious), cwd=project)
    done = runner.run("submit", "--site", "local", "--wait", "-", "sh", "-c", "echo planted", cwd=project)
    assert done.returncode != 0
    assert precious.read_text() == "as it was\n"


def test_the_pid_file_of_an_instance_replaces_a_link(runner: Runner, precious: Path) -> None:
    image = give_to(runner, make_sandbox(runner.folder / "instance-image"))
    shared = runner.folder / "shared"
    shared.mkdir(exist_ok=True)
    give_to(runner, shared)
    (shared / "pid").symlink_to(precious)
    runner.read("instance", "start", "--pid-file", str(shared / "pid"), str(image), "linked")
    try:
        assert precious.read_text() == "as it was\n"
        assert not (shared / "pid").is_symlink()
        assert int((shared / "pid").read_text()) > 1
    finally:
        runner.run("instance", "stop", "linked")


def test_logins_in_a_runtime_directory_of_another_user_are_not_used(tmp_path: Path) -> None:
    place = tmp_path / "containers"
    place.mkdir()
    (place / "auth.json").write_text(json.dumps({"auths": {"example.org": {"auth": "cGxhbnRlZDpwdw=="}}}))

    def find(runtime: str) -> object:
        sources = CredentialSources(environ={"XDG_RUNTIME_DIR": runtime}, home=tmp_path / "home")
        return sources.find("example.org", "x").credential

    assert find(str(tmp_path)) is not None
    assert find(os.path.relpath(tmp_path)) is None
    tmp_path.chmod(0o777)
    assert find(str(tmp_path)) is None
    require_root()
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65533, 65533)
    assert find(str(tmp_path)) is None
