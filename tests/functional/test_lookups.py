# SPDX-License-Identifier: BSD-3-Clause
"""What a tag means is looked up when a container starts: once for all on a node, and not again for two minutes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.builders.containers import Runner, each_role
from tests.builders.images import add_shell_image
from tests.fakes.registry import FakeRegistry, Policy

_LOGIN = {"APPTAINER_DOCKER_USERNAME": "me", "APPTAINER_DOCKER_PASSWORD": "right"}


@pytest.fixture
def runner() -> Iterator[Runner]:
    """A user: who asks is the same code for root, whose starts `test_a_tag_that_moved_runs_the_new_image` has."""
    yield from each_role("user", is_warm=True)


@pytest.fixture(params=["user", "root"])
def both(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(request.param, is_warm=True)


def put_image(registry: FakeRegistry, version: str) -> str:
    """Let the tag mean this version from now on; the digest of its manifest."""
    return add_shell_image(registry, "team/app:1", {"version": version.encode()})


def words(registry: FakeRegistry, *flags: str, pin: str = "") -> tuple[str, ...]:
    name = f"docker://{registry.host}/team/app:1{pin}"
    return ("exec", *flags, name, "/bin/sh", "-c", "read x </version; echo $x")


def age_answers(runner: Runner, seconds: float = 600) -> None:
    """As if everything had been asked so long ago."""
    for path in (runner.folder / "node/names").iterdir():
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def test_a_tag_that_moved_runs_the_new_image(both: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        assert both.read(*words(registry)) == "old\n"
        put_image(registry, "new")
        age_answers(both)
        assert both.read(*words(registry)) == "new\n"


@pytest.mark.parametrize("way", ["flag", "variable", "setting"])
def test_who_wants_it_asks_at_once(runner: Runner, way: str) -> None:
    site = runner.folder / "site.toml"
    site.write_text("tag_lifetime = 0\n" if way == "setting" else "")
    site.chmod(0o644)
    env = {"KEDGE_SITE_CONFIG": str(site), **({"KEDGE_TAG_LIFETIME": "0"} if way == "variable" else {})}
    with FakeRegistry() as registry:
        put_image(registry, "old")
        assert runner.read(*words(registry), env=env) == "old\n"
        put_image(registry, "new")
        asked = words(registry, *(("--pull", "newer") if way == "flag" else ()))
        assert runner.read(*asked, env=env) == "new\n"


def test_an_unchanged_tag_costs_one_request_and_then_none(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "same")
        runner.read(*words(registry))
        registry.server.log.clear()
        runner.read(*words(registry))
        assert registry.server.log == []
        age_answers(runner)
        for _ in range(2):
            assert runner.read(*words(registry)) == "same\n"
        assert [each.method for each in registry.server.log] == ["HEAD"]


def test_ranks_of_a_node_ask_once(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        runner.read(*words(registry))
        put_image(registry, "new")
        age_answers(runner)
        registry.server.log.clear()
        argv = runner.argv(*words(registry))
        started = [
            subprocess.Popen(argv, env=runner.variables(), cwd=runner.home, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        assert [each.communicate(timeout=120)[0] for each in started] == ["new\n"] * 4
        assert len(registry.server.seen("HEAD /v2/.*/manifests/1$")) == 1


def test_without_the_registry_the_image_here_runs_with_one_warning(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        runner.read(*words(registry))
    age_answers(runner)
    first, second = runner.run(*words(registry)), runner.run(*words(registry))
    assert (first.returncode, first.stdout) == (second.returncode, second.stdout) == (0, "old\n")
    assert f"cannot reach {registry.host}" in first.stderr
    assert " ago (sha256:" in first.stderr
    assert second.stderr == ""
    again = runner.run(*words(registry, "--pull", "newer"))
    assert again.returncode == 0  # what the store knows counts there, too
    assert " ago (sha256:" in again.stderr


def test_without_registry_and_store_the_image_of_the_node_runs(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        runner.read(*words(registry))
    age_answers(runner)
    done = runner.run(*words(registry), env={"KEDGE_CACHEDIR": str(runner.home / "empty")})
    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    assert "using the copy of" in done.stderr


def test_a_tag_that_is_gone_is_an_error(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        runner.read(*words(registry))
        registry.manifests.clear()
        age_answers(runner)
        done = runner.run(*words(registry))
    assert (done.returncode, done.stdout) == (255, "")


def test_a_wrong_login_fails_also_where_the_image_is_here(runner: Runner) -> None:
    with FakeRegistry(Policy(auth="bearer", users={"me": "right"}, private=frozenset({"team/app"}))) as registry:
        put_image(registry, "secret")
        assert runner.read(*words(registry), env=_LOGIN) == "secret\n"
        assert runner.read(*words(registry), env=_LOGIN) == "secret\n"
        wrong = runner.run(*words(registry), env={**_LOGIN, "APPTAINER_DOCKER_PASSWORD": "wrong"})
        none = runner.run(*words(registry))
    assert (wrong.returncode, wrong.stdout, none.returncode, none.stdout) == (255, "", 255, "")
    assert "right" not in "".join(path.read_text() for path in (runner.folder / "node/names").iterdir())


def test_a_login_that_was_taken_away_is_noticed(runner: Runner) -> None:
    with FakeRegistry(Policy(auth="bearer", users={"me": "right"}, private=frozenset({"team/app"}))) as registry:
        put_image(registry, "secret")
        runner.read("registry", "login", "-u", "me", "--password-stdin", registry.host, stdin="right")
        assert runner.read(*words(registry)) == "secret\n"
        time.sleep(0.05)  # times of files are as coarse as a tick of the kernel
        runner.read("registry", "logout", registry.host)
        assert runner.run(*words(registry)).returncode == 255


def test_a_digest_asks_nobody(runner: Runner) -> None:
    """Also behind a tag, as submitted jobs name their image."""
    with FakeRegistry() as registry:
        digest = put_image(registry, "fixed")
        assert runner.read(*words(registry, pin=f"@{digest}")) == "fixed\n"
        put_image(registry, "other")
        age_answers(runner)
        registry.server.log.clear()
        assert runner.read(*words(registry, pin=f"@{digest}")) == "fixed\n"
        assert registry.server.log == []


def test_a_digest_of_an_image_that_was_pulled_is_run_without_the_registry(runner: Runner) -> None:
    with FakeRegistry() as registry:
        digest = put_image(registry, "fixed")
        runner.read("unpack", f"docker://{registry.host}/team/app:1")
    done = runner.run(*words(registry, pin=f"@{digest}"))
    assert (done.returncode, done.stdout) == (0, "fixed\n"), done.stderr


def test_a_node_that_cannot_remember_still_runs_what_it_has(runner: Runner) -> None:
    with FakeRegistry() as registry:
        put_image(registry, "old")
        runner.read(*words(registry))
        age_answers(runner)
        names = runner.folder / "node/names"
        names.chmod(0o500)
        try:
            done = runner.run(*words(registry))
        finally:
            names.chmod(0o700)
        assert (done.returncode, done.stdout, done.stderr) == (0, "old\n", ""), "from there, and not another way"
