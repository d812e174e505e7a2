# SPDX-License-Identifier: BSD-3-Clause
"""Verbs that Apptainer's users know: run-help, remote, keyserver, delete, search in a library, and where files are."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import make_sandbox
from tests.builders.images import MACHINE
from tests.builders.oci_archive import Entry, OciArchive
from tests.builders.rows import each_row
from tests.fakes.library import FINGERPRINT, TOKEN, FakeRemote
from tests.functional.test_cli_container import run_kedge
from tests.wording import assert_begins, assert_reads, assert_says


class User:
    """Somebody with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return run_kedge(*words, HOME=str(self.home), XDG_CONFIG_HOME=str(self.home / "config"), **environ)

    def read(self, *words: str, **environ: str) -> str:
        done = self.run(*words, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str, **environ: str) -> str:
        done = self.run(*words, **environ)
        assert done.returncode not in (0, 1), done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr

    @property
    def remotes(self) -> Path:
        return self.home / ".apptainer/remote.yaml"


@pytest.fixture
def user(tmp_path: Path) -> User:
    (tmp_path / "home").mkdir()
    return User(tmp_path / "home")


def test_run_help_shows_the_text_of_an_image_and_of_its_apps(tmp_path: Path, user: User) -> None:
    image = make_sandbox(tmp_path / "image")
    assert_reads(user.read("run-help", str(image)), "run/no-help-sections-defined-image")
    (image / ".singularity.d/runscript.help").write_text("How to use it.\n")
    app = image / "scif/apps/tool/scif"
    app.mkdir(parents=True)
    (app / "runscript.help").write_text("How to use the tool.\n")
    assert user.read("run-help", str(image)) == "How to use it.\n"
    assert user.read("run-help", "--app", "tool", str(image)) == "How to use the tool.\n"
    assert_reads(user.read("run-help", "--app", "none", str(image)), "run/no-help-sections-defined-image")
    assert json.loads(user.read("--json", "run-help", str(image)))["help"] == "How to use it."
    assert "/no/such" in user.refused("run-help", "/no/such.sif")


def test_remote_is_added_used_listed_and_removed(user: User) -> None:
    assert json.loads(user.read("--json", "remote", "list"))["active"] == "DefaultRemote"
    user.read("remote", "add", "--no-login", "site", "cloud.site.example")
    user.read("remote", "add", "--no-login", "--no-default", "other", "https://other.example/")
    assert stat.S_IMODE(user.remotes.stat().st_mode) == 0o600
    rows = [line.split() for line in user.read("remote", "list").splitlines()]
    assert ["site", "cloud.site.example", "✓", "✓"] in rows
    assert ["other", "other.example", "✓"] in rows
    user.read("remote", "use", "other")
    assert user.remotes.read_text().startswith("Active: other\n")
    user.read("remote", "remove", "other")
    found = json.loads(user.read("--json", "remote", "list"))
    assert found["active"] == "DefaultRemote"
    assert [each["name"] for each in found["remotes"]] == ["DefaultRemote", "site"]


def test_remote_keeps_what_apptainer_wrote(user: User) -> None:
    user.remotes.parent.mkdir()
    kept = "Credentials:\n    - URI: docker://r.example\n      Auth: Basic xxx\n      Insecure: false\n"
    user.remotes.write_text(f"Active: a\nRemotes:\n    a:\n        URI: a.example\n        Token: secret\n{kept}")
    user.read("remote", "add", "--no-login", "-n", "b", "b.example")
    user.read("remote", "remove", "b")
    after = user.remotes.read_text()
    assert after.endswith(kept)
    assert "Token: secret" in after
    assert after.startswith("Active: a\n")


@each_row(
    "words, said",
    [
        (("add", "--no-login", "x", "http://x.example"), "requires --insecure"),
        (("add", "--no-login", "DefaultRemote", "x.example"), "the remote 'DefaultRemote' exists already"),
        (("add", "--no-login", "a b", "x.example"), "is not a valid name of a remote"),
        (("add", "--no-login", "x", "x y"), "is not a valid address of a remote"),
        (("add", "--global", "x", "x.example"), "does not change the site's files"),
        (("use", "nobody"), "unknown remote 'nobody'"),
        (("remove", "DefaultRemote"), "is global and can't be removed"),
        (("login",), "no terminal"),
    ],
)
def test_remote_mistakes_are_refused(user: User, words: tuple[str, ...], said: str) -> None:
    assert said in user.refused("remote", *words)
    assert not user.remotes.exists()


def test_remote_status_and_login_ask_its_services(user: User, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{TOKEN}\n")
    wrong.write_text("wrong\n")
    with FakeRemote() as remote:
        user.read("remote", "add", "-i", "--tokenfile", str(right), "site", remote.url)
        assert f"Token: {TOKEN}" in user.remotes.read_text()
        told = user.read("remote", "status")
        assert ["Library", "OK", "v1.2.3", remote.url] in [line.split() for line in told.splitlines()]
        assert "logged in" in told
        assert "status 401" in user.refused("remote", "login", "--tokenfile", str(wrong), "site")
        assert f"Token: {TOKEN}" in user.remotes.read_text()
        user.read("remote", "logout")
        assert "Token" not in user.remotes.read_text()
        assert "logged out" in user.read("remote", "status", "site")
    assert TOKEN not in told


def test_search_and_delete_in_the_library_of_the_remote(user: User) -> None:
    with FakeRemote() as remote:
        user.read("remote", "add", "-i", "--no-login", "site", remote.url)
        told = user.read("search", "--in-library", "--arch", "amd64", "alpine")
        assert_begins(told, "explain/found-container-images-matching", 1, "amd64", "alpine")
        assert "\tlibrary://library/default/alpine:3,latest\n" in told
        assert FINGERPRINT in told
        assert "No container images found" in user.read("search", "--library", remote.url, "nothing")
        assert "at least 3 characters" in user.refused("search", "--in-library", "al")
        user.read("delete", "--force", "--arch", "amd64", "library://a/b/c:1")
        assert remote.deleted == ["/v1/images/a/b/c:1 amd64"]
        assert "has no a/b/missing:1" in user.refused("delete", "-F", "library://a/b/missing:1")
        assert 'unsupported protocol scheme "docker"' in user.refused("delete", "-F", "docker://a/b")
        assert "no terminal" in user.refused("delete", "library://a/b/d:1")
        assert "would delete a/b/d:latest" in user.read("delete", "--dry-run", "a/b/d")
        assert len(remote.deleted) == 1


def test_keyservers_are_a_list_that_is_asked_in_order(user: User) -> None:
    first, second = "https://keys.openpgp.org", "https://keys.example.org"
    assert json.loads(user.read("--json", "keyserver", "list")) == [first]
    user.read("keyserver", "add", "--order", "1", second)
    assert json.loads(user.read("--json", "keyserver", "list")) == [second, first]
    assert user.read("config", "get", "keyserver").strip() == f"{second},{first}"
    assert "already" in user.refused("keyserver", "add", second)
    assert "--insecure" in user.refused("keyserver", "add", "http://plain.example")
    user.read("keyserver", "remove", first)
    assert "only key server" in user.refused("keyserver", "remove", second)
    assert_says(user.refused("keyserver", "remove", first), "sign/not-list-key-servers")


def test_keyservers_the_next_one_is_asked_where_one_knows_nothing(user: User) -> None:
    with FakeRemote() as silent, FakeRemote() as other:
        servers = f"{silent.url},{other.url}"
        assert "no key" in user.refused("key", "pull", "A" * 40, KEDGE_KEYSERVER=servers)
        asked = [each.path for remote in (silent, other) for each in remote.server.log]
        assert asked == ["/pks/lookup", "/pks/lookup"]


def test_configdir_is_where_logins_remotes_and_keys_are(user: User, tmp_path: Path) -> None:
    chosen = tmp_path / "elsewhere"
    user.read("remote", "add", "--no-login", "site", "site.example", APPTAINER_CONFIGDIR=str(chosen))
    assert "site.example" in (chosen / "remote.yaml").read_text()
    words = ("key", "newpair", "-N", "a", "-E", "a@b.example", "-C", "", "-b", "2048", "--no-password")
    user.read(*words, APPTAINER_CONFIGDIR=str(chosen))
    assert (chosen / "keys/pgp-public").exists()
    (chosen / "docker-config.json").write_text(json.dumps({"auths": {"r.example": {"auth": "bWU6c2VjcmV0"}}}))
    (chosen / "config.json").write_text(json.dumps({"auths": {"apptainers.example": {"auth": "bWU6c2VjcmV0"}}}))
    known = user.read("registry", "list", APPTAINER_CONFIGDIR=str(chosen))
    assert "r.example" in known
    assert "apptainers.example" in known
    assert not user.remotes.parent.exists()


def test_verify_refuses_ocsp_with_a_reason(user: User, tmp_path: Path) -> None:
    image = tmp_path / "i.sif"
    image.touch()
    assert_says(user.refused("verify", "--ocsp-verify", str(image)), "sign/does-not-check-online-whether")
    assert "revoked" in user.refused("verify", str(image), APPTAINER_VERIFY_OCSP="true")


def test_config_fakeroot_says_what_to_ask_for(user: User) -> None:
    assert user.read("config", "fakeroot", "root").strip() == "root needs none"
    assert_says(user.refused("config", "fakeroot", "no-such-user"), "doctor/host-no-user")
    told = json.loads(user.read("--json", "config", "fakeroot", "daemon"))
    assert told["found"].startswith("none: ")


@pytest.mark.parametrize("form", ["sif", "sandbox"])
def test_fix_perms_lets_the_owner_read_and_enter_everything(tmp_path: Path, user: User, form: str) -> None:
    entries = [
        Entry("closed", mode=0o055),
        Entry("closed/file", b"x", mode=0o044),
        Entry("closed/program", b"x", mode=0o011),
        Entry("open", b"x", mode=0o644),
    ]
    OciArchive(entries, {}, MACHINE).write(tmp_path / "i.tar")
    every = {"closed": "755", "closed/file": "644", "closed/program": "711", "open": "644"}
    for words, modes in ((("--fix-perms",), every), ((), {"closed": "055", "open": "644"})):
        target = tmp_path / f"out{len(words)}"
        cache = ("--tmpdir", str(tmp_path))
        user.read("pull", *words, *cache, "--format", form, str(target), f"oci-archive:{tmp_path / 'i.tar'}")
        box = target
        if form == "sif":
            box = tmp_path / f"box{len(words)}"
            user.read("pull", "--sandbox", str(box), str(target))
        assert {name: f"{stat.S_IMODE((box / name).stat().st_mode):03o}" for name in modes} == modes
