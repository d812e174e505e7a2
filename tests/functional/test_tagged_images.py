# SPDX-License-Identifier: BSD-3-Clause
"""Images that exist only under a name in the cache: cleaning and limits leave them, `image rm` takes them."""

from __future__ import annotations

import json

import pytest

from tests.builders.builds import Workshop
from tests.builders.containers import Runner


@pytest.fixture
def own(runner: Runner) -> Workshop:
    """A workshop with two images that share a layer, and nothing else in the cache."""
    if not (runner.home / "context").exists():
        Workshop.open(runner)
    shop = Workshop(runner, runner.home / "context")
    runner.run("cache", "clean", "--all", "--force")
    shop.write("Dockerfile", "FROM scratch\nCOPY busybox /bin/sh\n")
    runner.read("build", "-q", "-t", "team/tools:1", ".", cwd=shop.context)
    shop.write("Dockerfile", "FROM scratch\nCOPY busybox /bin/sh\nCOPY Dockerfile /more\n")
    runner.read("build", "-q", "-t", "more", ".", cwd=shop.context)
    return shop


def list_names(runner: Runner) -> list[str]:
    return sorted(image["reference"] for image in json.loads(runner.read("image", "list", "--json")))


BOTH = ["docker.io/library/more:latest", "docker.io/team/tools:1"]


def test_images_with_a_name_stay(own: Workshop) -> None:
    run = own.runner
    for words in (("clean", "--force"), ("clean", "--type", "blob", "--force"), ("limit", "1")):
        said = run.read("cache", *words)
        assert list_names(run) == BOTH, words
        assert ("Kept what was built or tagged here: more, team/tools:1" in said) == (words[0] == "clean"), words
    run.read("cache", "limit", "none")
    assert run.read("exec", "docker://team/tools:1", "/bin/sh", "-c", "echo there") == "there\n"


def test_clean_all_takes_them_by_name(own: Workshop) -> None:
    run = own.runner
    assert "built or tagged here: more, team/tools:1" in run.read("cache", "clean", "--all", "--dry-run")
    assert list_names(run) == BOTH
    assert "built or tagged here: more, team/tools:1" in run.read("cache", "clean", "--all", "--force").lower()
    assert list_names(run) == []


def test_rm_takes_one_and_what_only_it_needs(own: Workshop) -> None:
    run = own.runner
    assert run.read("image", "rm", "more").startswith("Removed more (")
    assert list_names(run) == BOTH[1:]
    assert run.read("exec", "docker://team/tools:1", "/bin/sh", "-c", "echo there") == "there\n"
    run.read("image", "rm", "docker://team/tools:1")
    kinds = [item["kind"] for item in json.loads(run.read("cache", "list", "--json"))]
    assert "name" not in kinds
    done = run.run("image", "rm", "more")
    assert done.returncode != 0
    assert "kedge image list" in done.stderr
