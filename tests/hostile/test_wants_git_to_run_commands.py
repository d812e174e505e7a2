# SPDX-License-Identifier: BSD-3-Clause
"""A recipe, the base image it names, and a repository want git to run commands on the host, or to use its logins."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kedge.builds.addresses import GitAddress, read_git_address
from kedge.builds.step_values import RecipePlace
from kedge.errors import InvalidRecipe
from kedge.system.outside import Outside
from tests.builders.builds import SHELL, Workshop
from tests.builders.certificates import make_authority
from tests.builders.containers import give_to
from tests.builders.rows import each_row
from tests.builders.strangers import make_base
from tests.fakes.http_server import FakeServer, Recorded, Reply
from tests.requirements import require_program

OPTIONS = (
    "git@x#--upload-pack=id > {mark}; false",
    "git@x#--upload-pack=id>{mark};false:sub",
    "https://127.0.0.1:1/x.git#--upload-pack=id>{mark};false",
    "ssh://-oProxyCommand=id>{mark}/x",
    "git@-oProxyCommand=id>{mark}:x",
    "git@127.0.0.1:--upload-pack=id>{mark}",
)
ADDRESSES = (
    *("git@x", "git@x/y", "git@:x", "git@h:", "git@h:-x", "git@-h:x", "git@h:a b", "git@h:a\nb", "git@h h:x"),
    *(
        "ssh://-h/x",
        "ssh://h",
        "ssh:///x",
        "ssh://u@-h/x",
        "ssh://-u@h/x",
        "ssh://h/x%0ay",
        "ssh://h/-x",
        "ssh://h:x/y",
    ),
    *("git://h/x%00", "git://h\\x/y", "git://h/x y", "https://h\t/x.git", "https://-h/x.git", "https:///x.git"),
    *("ext::sh -c id", "file:///etc", "/etc", "-x", "ssh://[h]/x", "git@[-x]:y", "https://h/x.git#-x", "git@h:x#+a"),
    *("git@h:x#a..b", "git@h:x#a@{1}", "git@h:x#^a", "git@h:x# ", "git@h:x#a b", "git@h:x#/a", "git@h:x#a\\b"),
)


def expect(url: str, host: str, revision: str = "", directory: str = "", *, uses_ssh: bool = False) -> GitAddress:
    return GitAddress(Outside(url), host, Outside(revision), directory, uses_ssh)


class Site(NamedTuple):
    """A web server over a directory; `closed/` wants a login."""

    server: FakeServer
    folder: Path

    @property
    def address(self) -> str:
        return self.server.url


@pytest.fixture(name="site")
def serve_site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    with FakeServer(functools.partial(answer, folder, "/closed")) as server:
        yield Site(server, folder)


def answer(folder: Path, closed: str, request: Recorded) -> Reply:
    if request.path.startswith(closed) and not request.authorization:
        return Reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
    path = folder / request.path.lstrip("/")
    return Reply(200, path.read_bytes()) if path.is_file() else Reply(404)


def publish(folder: Path, name: str, **files: str) -> None:
    """A repository that a plain web server can serve; `.gitmodules` gets an entry for the submodule `inner`."""
    git, work = require_program("git"), folder.parent / f"work-{name.replace('/', '-')}"
    work.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder.parent)}

    def run(*words: str, cwd: Path = work) -> str:
        done = subprocess.run([git, *words], cwd=cwd, env=environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run("init", "-q", "-b", "main")
    for path, text in files.items():
        (work / path).write_text(text)
    run("add", ".")
    if ".gitmodules" in files:
        commit = (
            run("rev-parse", "HEAD", cwd=folder.parent / "work-inner")
            if (folder.parent / "work-inner").is_dir()
            else "1" * 40
        )
        run("update-index", "--add", "--cacheinfo", f"160000,{commit},inner")
    run("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    run("tag", "v1")
    (folder / name).parent.mkdir(exist_ok=True)
    run("clone", "-q", "--bare", str(work), str(folder / name))
    run("update-server-info", cwd=folder / name)


@pytest.fixture(name="mark")
def make_mark(shop: Workshop) -> Path:
    """The file that a command of the attacker would write."""
    return shop.runner.home / "PWNED"


def refuse(shop: Workshop, mark: Path, *words: str, env: dict[str, str] | None = None) -> str:
    done = shop.start(*words, "out.sif", "Dockerfile", env=env)
    assert not mark.exists(), done.stderr
    assert done.returncode == 90, done.stdout + done.stderr
    assert "Dockerfile:" in done.stderr
    assert "bug" not in done.stderr
    return done.stderr


@each_row("way", [(), ("--dry-run",)])
@each_row("attack", OPTIONS)
def test_options_of_git_in_a_recipe(shop: Workshop, mark: Path, attack: str, way: tuple[str, ...]) -> None:
    source = attack.format(mark=mark)
    shop.write("Dockerfile", f'{SHELL}ADD ["{source}", "/x"]\n')
    assert "Dockerfile:4:" in refuse(shop, mark, *way)


@each_row("way", [(), ("--dry-run",)])
def test_options_of_git_in_onbuild_of_the_base(shop: Workshop, mark: Path, way: tuple[str, ...]) -> None:
    base = make_base(shop, f'ADD ["git@x#--upload-pack=id > {mark}; false", "/x"]')
    shop.write("Dockerfile", f"FROM {base}\nRUN true\n")
    refuse(shop, mark, *way)


@each_row("text", ADDRESSES)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecipe, match=r"(?s)D:1:1: .* is not "):
        read_git_address(text, RecipePlace("D", 1))


@each_row(
    ("text", "address"),
    [
        ("https://h/x.git", expect("https://h/x.git", "h")),
        ("HTTPS://H.org:8443/~a/x%20y.git#v1.0", expect("https://H.org:8443/~a/x%20y.git", "h.org:8443", "v1.0")),
        ("https://me:pass@h/x.git#:sub", expect("https://me:pass@h/x.git", "h", "", "sub")),
        ("git://h/x#refs/pull/1/head:a/b", expect("git://h/x", "h", "refs/pull/1/head", "a/b")),
        ("git@h.org:a/b.git#größe", expect("git@h.org:a/b.git", "h.org", "größe", uses_ssh=True)),
        ("git@h:/srv/x#a-b_c/d:", expect("git@h:/srv/x", "h", "a-b_c/d", uses_ssh=True)),
        ("ssh://git@[::1]:22/x", expect("ssh://git@[::1]:22/x", "[::1]:22", uses_ssh=True)),
    ],
)
def test_what_people_write_is_read(text: str, address: GitAddress) -> None:
    assert read_git_address(text, RecipePlace("D", 1)) == address


def test_dry_run_fetches_nothing(shop: Workshop, site: Site) -> None:
    address, folder = site.address, site.folder
    publish(folder, "tool.git", file="1")
    shop.write("Dockerfile", f"{SHELL}ADD {address}/tool.git /x\nADD {address}/tool.git/HEAD /y\nRUN true\n")
    shop.build("out.sif", "Dockerfile")
    site.server.log.clear()
    done = shop.start("--dry-run", "out.sif", "Dockerfile")
    assert done.returncode == 0, done.stderr
    assert "ADD" in done.stdout
    assert site.server.log == []


def test_repository_reaches_no_filter_hook_or_monitor_of_the_user(shop: Workshop, site: Site, mark: Path) -> None:
    address, folder = site.address, site.folder
    publish(folder, "tool.git", file="1", **{".gitattributes": "* filter=lfs\n"})
    template = shop.runner.home / "template/hooks"
    template.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction"):
        (template / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (template / name).chmod(0o755)
    (shop.runner.home / ".gitconfig").write_text(
        f'[filter "lfs"]\nsmudge = "touch {mark}; cat"\nclean = "touch {mark}; cat"\n[core]\nfsmonitor = touch {mark}\n'
        f"hooksPath = {template}\n[init]\ntemplateDir = {template.parent}\n"
    )
    give_to(shop.runner, shop.runner.home)
    shop.write("Dockerfile", f"{SHELL}ADD {address}/tool.git#v1 /x\n")
    shop.build("out.sif", "Dockerfile", env={"GIT_TEMPLATE_DIR": str(template.parent)})
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/x/file") == "1"
    assert not mark.exists()


SUBMODULES = (
    *("ext::sh -c touch% MARK", "-oProxyCommand=touch MARK", "ssh://-oProxyCommand=touch/x"),
    *("HOME", "file://HOME", "git@127.0.0.1:x"),
)


@each_row("number,url", enumerate(SUBMODULES))
def test_submodules_are_no_commands_directories_or_logins(
    shop: Workshop, site: Site, mark: Path, number: int, url: str
) -> None:
    address, folder = site.address, site.folder
    if not number:
        publish(folder, "inner", file="1")
    home = shop.runner.home
    url = url.replace("MARK", str(mark)).replace("HOME", str(folder / "inner"))
    text = f'[submodule "inner"]\npath = inner\nurl = {url}\nupdate = none\n'
    publish(folder, f"tool{number}.git", **{".gitmodules": text})
    (home / ".gitconfig").write_text('[protocol "ext"]\nallow = always\n[protocol "file"]\nallow = always\n')
    give_to(shop.runner, home)
    shop.write("Dockerfile", f"{SHELL}ADD {address}/tool{number}.git /x\n")
    env = {"GIT_SSH_COMMAND": f"touch {mark};", "SSH_AUTH_SOCK": "/nowhere"}
    done = shop.start("out.sif", "Dockerfile", env=env)
    assert not mark.exists(), done.stderr
    assert done.returncode in (90, 42), done.stderr  # 42: git refuses it by itself
    assert any(text in done.stderr for text in ("Git repository", "SSH", "command-line option")), done.stderr


def test_submodules_beside_the_repository_are_fetched(shop: Workshop, site: Site) -> None:
    address, folder = site.address, site.folder
    publish(folder, "inner", file="1")
    publish(folder, "tool.git", **{".gitmodules": '[submodule "inner"]\npath = inner\nurl = ../inner\n'})
    shop.write("Dockerfile", f"{SHELL}ADD {address}/tool.git /x\n")
    shop.build("out.sif", "Dockerfile")
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/x/inner/file") == "1"


def test_logins_of_the_user_are_not_asked_for(shop: Workshop, site: Site, mark: Path) -> None:
    """A repository behind a login goes into an image whose next step may send it anywhere."""
    address, folder = site.address, site.folder
    publish(folder, "closed/tool.git", file="1")
    home = shop.runner.home
    helper = f"!f() {{ touch {mark}; echo username=me; echo password=secret; }}; f"
    (home / ".gitconfig").write_text(f'[credential]\nhelper = "{helper}"\n')
    (home / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    give_to(shop.runner, home)
    shop.write("Dockerfile", f"{SHELL}ADD {address}/closed/tool.git /x\n")
    done = shop.start(
        "out.sif", "Dockerfile", env={"GIT_ASKPASS": f"/usr/bin/touch {mark}", "SSH_ASKPASS": "/bin/false"}
    )
    assert done.returncode == 42, done.stderr
    assert "--secret id=GIT_AUTH_TOKEN.127.0.0.1:" in done.stderr
    assert not mark.exists()
    assert {request.authorization for request in site.server.log} == {""}


def test_token_of_the_command_line_goes_to_its_host_alone(shop: Workshop, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    publish(site, "tool.git", file="1")
    authority = make_authority(tmp_path / "authority")
    pair = authority.issue("127.0.0.1")
    trusted = shop.write("ca.crt", authority.certificate.read_text())
    asked = functools.partial(answer, site, "/")
    env = {"GIT_SSL_CAINFO": str(trusted), "TOKEN": "token-of-one-host"}
    with FakeServer(asked, tls=pair) as own, FakeServer(asked, tls=pair) as other:
        secret = ("--secret", f"id=GIT_AUTH_TOKEN.{own.host},env=TOKEN")
        shop.write("Dockerfile", f"{SHELL}ADD {own.url}/tool.git /x\n")
        shop.build(*secret, "out.sif", "Dockerfile", env=env)
        shop.write("Dockerfile", f"{SHELL}ADD {other.url}/tool.git /x\n")
        done = shop.start(*secret, "other.sif", "Dockerfile", env=env)
    assert done.returncode == 42, done.stderr
    assert shop.exec("out.sif", "/bin/busybox", "cat", "/x/file") == "1"
    assert {request.authorization for request in own.log} > {""}
    assert {request.authorization for request in other.log} == {""}


@each_row("address", ["git@127.0.0.1:x/y.git", "ssh://git@127.0.0.1/x/y.git#main"])
def test_ssh_keys_are_used_with_ssh_on_the_command_line_only(shop: Workshop, mark: Path, address: str) -> None:
    mark.unlink(missing_ok=True)
    shop.write("Dockerfile", f"{SHELL}ADD {address} /x\n")
    env = {"GIT_SSH_COMMAND": f"touch {mark};", "SSH_AUTH_SOCK": "/nowhere"}
    assert "--ssh default" in refuse(shop, mark, env=env)
    done = shop.start("--ssh", "default", "out.sif", "Dockerfile", env=env)
    assert done.returncode == 42, done.stderr
    assert mark.exists()  # the user's own SSH, by the user's word
