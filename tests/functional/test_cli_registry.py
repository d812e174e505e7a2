# SPDX-License-Identifier: BSD-3-Clause
"""`kedge registry`, as a command, against a registry in this process. No secret is ever printed. Needs nothing."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import UsageError
from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge
from tests.fakes.registry import FakeRegistry, Policy
from tests.wording import assert_says

PASSWORD = "cli-p4ssw0rd-secret"


class Shell:
    """Runs kedge with a home of its own and keeps all it ever printed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.printed = ""
        self.file = home / ".apptainer/docker-config.json"

    def run(self, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.home), **environ}
        done = run_kedge(["registry", *words], environment=environment, folder=Path.cwd(), input=stdin)
        self.printed += done.stdout + done.stderr
        return done


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    shell.home.mkdir()
    yield shell
    assert PASSWORD not in shell.printed
    assert base64.b64encode(f"user:{PASSWORD}".encode()).decode() not in shell.printed
    assert "Traceback" not in shell.printed


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with FakeRegistry(Policy(auth=getattr(request, "param", "bearer"), users={"user": PASSWORD}, page=2)) as registry:
        for tag in ("1.0", "1.1", "2.0"):
            registry.add_image("team/app", tag, [b"x"])
        yield registry


@pytest.mark.parametrize("registry", ["basic", "bearer", "nvcr"], indirect=True)
def test_registry_login_checks_stores_lists_and_logs_out(shell: Shell, registry: FakeRegistry) -> None:
    done = shell.run("login", "-u", "user", "--password-stdin", f"docker://{registry.host}", stdin=PASSWORD + "\n")
    assert done.returncode == 0, done.stderr
    assert_says(done.stdout, "pull/logged-user", registry.host)
    document = json.loads(shell.file.read_text())
    assert document["auths"][registry.host]["auth"] == base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    assert shell.file.stat().st_mode & 0o777 == 0o600
    listed = json.loads(shell.run("list", "--json").stdout)
    assert listed == [{"registry": registry.host, "username": "user", "source": str(shell.file)}]
    assert registry.host in shell.run("list").stdout
    assert shell.run("tags", f"{registry.host}/team/app").stdout.split() == ["1.0", "1.1", "2.0"]
    assert shell.run("logout", registry.host).returncode == 0
    assert json.loads(shell.file.read_text())["auths"] == {}
    again = shell.run("logout", registry.host)
    assert (again.returncode, "no login for" in again.stdout) == (0, True)


def test_registry_login_refused_stores_nothing(shell: Shell, registry: FakeRegistry) -> None:
    done = shell.run("-v", "login", "-u", "user", "--password-stdin", registry.host, stdin="wrong-" + PASSWORD)
    assert done.returncode == 12
    assert "refused the login" in done.stderr
    assert not shell.file.exists()
    as_json = shell.run("--json", "login", "-u", "user", "-p", "wrong-" + PASSWORD, registry.host)
    assert json.loads(as_json.stdout)["error"] == "authentication-failed"


def test_registry_login_where_everybody_may_enter_says_it_was_not_checked(shell: Shell) -> None:
    with FakeRegistry() as registry:
        done = shell.run("login", "-u", "user", "--password-stdin", registry.host, stdin=PASSWORD)
    assert done.returncode == 0
    assert "could not be checked" in done.stderr


def test_registry_logout_tells_of_other_logins(shell: Shell) -> None:
    with FakeRegistry() as registry:
        done = shell.run("logout", registry.host, DOCKER_USERNAME="user", DOCKER_PASSWORD=PASSWORD)
    assert "DOCKER_USERNAME and DOCKER_PASSWORD" in done.stderr


def test_registry_list_shows_every_source_and_no_secret(shell: Shell) -> None:
    (shell.home / ".docker").mkdir()
    encoded = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    config = {"auths": {"r.example": {"auth": encoded}}, "credHelpers": {"h.example": "x"}, "credsStore": "y"}
    (shell.home / ".docker/config.json").write_text(json.dumps(config))
    enroot = shell.home / ".config/enroot"
    enroot.mkdir(parents=True)
    (enroot / ".credentials").write_text(f"machine nvcr.io login $oauthtoken password {PASSWORD}\n")
    done = shell.run("list", NGC_API_KEY=PASSWORD, APPTAINER_DOCKER_USERNAME="user", APPTAINER_DOCKER_PASSWORD=PASSWORD)
    for word in (
        "r.example",
        "docker-credential-x",
        "docker-credential-y",
        "$oauthtoken",
        "NGC_API_KEY",
        "APPTAINER_DOCKER_USERNAME",
    ):
        assert word in done.stdout


def test_registry_list_without_logins_says_how_to_make_one(shell: Shell) -> None:
    done = shell.run("list")
    assert (done.returncode, "kedge registry login HOST" in done.stdout) == (0, True)
    assert json.loads(shell.run("list", "--json").stdout) == []


@each_row(
    "words, status",
    [
        (["login", "-u", "user", "--password-stdin", "ftp://x"], 10),
        (["login", "-u", "user", "--password-stdin", "nvcr.io/nvidia/pytorch"], 10),
        (["login", "-u", "user", "--password-stdin", ""], 10),
        (["login", "-u", "", "--password-stdin", "nvcr.io"], 2),
        (["login", "-u", "user", "-p", "x", "--password-stdin", "nvcr.io"], 2),
        (["login", "-u", "user", "nvcr.io"], 2),
        (["login"], 2),
        (["logout", "a b"], 10),
        (["tags", "./file.sif"], 10),
        ([], 2),
    ],
)
def test_registry_wrong_use_is_refused_before_any_network(shell: Shell, words: list[str], status: int) -> None:
    done = shell.run(*words, stdin=PASSWORD)
    assert done.returncode == status, done.stderr
    assert not shell.file.exists()


def test_registry_login_empty_password_is_refused(shell: Shell) -> None:
    done = shell.run("login", "-u", "user", "--password-stdin", "127.0.0.1:9", stdin="\n")
    assert (done.returncode, "empty" in done.stderr) == (2, True)


def test_login_with_a_password_that_is_no_text_is_refused(shell: Shell) -> None:
    environment = {**os.environ, "HOME": str(shell.home), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-m", "kedge", "registry", "login", "-u", "me", "--password-stdin", "localhost:1"],
        input=b"\xff\xfe", capture_output=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == UsageError.exit_code
    assert b"not UTF-8" in done.stderr


def test_login_with_standard_input_closed_has_no_password(shell: Shell) -> None:
    words = [sys.executable, "-m", "kedge", "registry", "login", "-u", "me", "--password-stdin", "localhost:1"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *words],
        env={**os.environ, "HOME": str(shell.home)}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == UsageError.exit_code
    assert b"the password is empty" in done.stderr


def test_registry_digest_is_what_a_pull_takes(shell: Shell) -> None:
    with FakeRegistry() as registry:
        digest = registry.add_image("team/app", "1.0", [b"x"])
        name = f"docker://{registry.host}/team/app"
        done = shell.run("digest", "--no-https", f"{name}:1.0")
        assert (done.returncode, done.stdout) == (0, f"{digest}\n"), done.stderr
        done = shell.run("digest", "--no-https", "--json", f"docker://{registry.host}#team/app:1.0")
        assert json.loads(done.stdout)["digest"] == str(digest)
        done = shell.run("digest", "--no-https", f"{name}:9")
        assert (done.returncode != 0, done.stdout) == (True, "")
        assert registry.server.seen("/manifests/")
        assert not registry.server.seen("/blobs/")
    done = shell.run("digest", "host:sh")
    assert_says(done.stderr, "pull/not-registry", "host:sh")
