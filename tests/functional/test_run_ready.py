# SPDX-License-Identifier: BSD-3-Clause
"""Images that are made ready before a start: what the child may say, and what a reference cannot be asked for."""

from __future__ import annotations

import pytest

from tests.builders.containers import Runner, warm_runner
from tests.wording import assert_says

runner = warm_runner


@pytest.fixture
def archive(runner: Runner) -> str:
    path = runner.home / "tools.tar"
    if not path.exists():
        runner.read("pull", f"oci-archive:{path}", "host:sh,ls")
    return f"oci-archive:{path}"


def test_ready_is_made_without_a_word_where_none_is_wanted(runner: Runner, archive: str) -> None:
    for words in (("--quiet", "--runtime", "auto"), ("--silent", "--runtime", "kedge")):
        done = runner.run("exec", *words, "--pull", "always", archive, "ls", "-d", "/usr")
        assert (done.returncode, done.stdout, done.stderr) == (0, "/usr\n", ""), words


def test_ready_as_something_else_than_a_folder_is_said_to_be_in_vain(runner: Runner, archive: str) -> None:
    done = runner.run("exec", "--root-from", "squashfuse", archive, "ls", "-d", "/usr")
    assert (done.returncode, done.stdout) == (0, "/usr\n")
    assert "--root-from squashfuse is ignored" in done.stderr


def test_instance_of_another_runtime_is_refused(runner: Runner, archive: str) -> None:
    done = runner.run("instance", "start", "--runtime", "podman", archive, "other")
    assert done.returncode == 65
    assert_says(done.stderr, "run/cannot-start-instances")


def test_instance_whose_number_cannot_be_written_does_not_stay(runner: Runner, archive: str) -> None:
    done = runner.run("instance", "start", "--pid-file", "/proc/no/such", archive, "numbered")
    assert done.returncode != 0
    assert "/proc/no/such" in done.stderr
    assert "numbered" not in runner.read("instance", "list")


def test_dry_run_joins_nobody(runner: Runner, archive: str) -> None:
    """Another rank of the same launch has the container: a plan is printed all the same, and nothing is started."""
    runner.read("exec", archive, "ls")
    words = ("exec", "--sharens", archive, "sh", "-c", "echo ready; read line")
    with runner.start(*words, pipes="stdin stdout") as first:
        assert first.stdout.readline() == "ready\n"
        said = runner.read("exec", "--sharens", "--dry-run", archive, "sh", "-c", "echo started")
        first.communicate("\n")
    assert "\nrun " in said
    assert "\nstarted" not in said
