# SPDX-License-Identifier: BSD-3-Clause
"""`kedge commit`: changes in an overlay become an image, as root and as an ordinary user; typed commands a recipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox, run_after
from tests.builders.own_etc import Account, make_etc
from tests.builders.python_images import PIP, make_python_image
from tests.builders.servers import wait_until_unused
from tests.requirements import require_program, require_root
from tests.wording import assert_says


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"), is_warm=True)


@pytest.fixture
def image(runner: Runner) -> str:
    folder = make_sandbox(runner.folder / "sandbox")
    for name in ("etc/gone", "opt/old/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return str(give_to(runner, folder))


@pytest.fixture
def overlay(runner: Runner) -> Path:
    folder = runner.home / "overlay"
    folder.mkdir()
    return give_to(runner, folder)


CHANGE = (
    "echo made > /etc/made; rm /etc/gone; rm -r /opt/old; mkdir /opt/old; echo 7 > /opt/old/new; ln -s made /etc/link"
)


def change(runner: Runner, image: str, overlay: Path, *flags: str) -> None:
    runner.read("exec", *flags, "--overlay", str(overlay), image, "sh", "-c", CHANGE)


def check(runner: Runner, made: Path) -> None:
    script = "cat /etc/made /etc/link /opt/old/new; ls /opt/old /etc; ls -a /"
    listing = runner.read("exec", str(made), "sh", "-c", script)
    assert listing.startswith("made\nmade\n7\n")
    assert "gone" not in listing
    assert "file" not in listing
    assert "kedge" not in listing


@pytest.mark.parametrize(
    ("runner", "flags", "name"),
    [
        *(("root", (), "new.sif"), ("user", (), "new"), ("user", (), "new.oci.tar")),
        ("user", ("--fakeroot",), "new.sif"),
    ],
    indirect=["runner"],
)
def test_commit_makes_an_image_of_the_changes(
    runner: Runner, image: str, overlay: Path, flags: tuple[str, ...], name: str
) -> None:
    change(runner, image, overlay, *flags)
    made = runner.home / name
    report = json.loads(runner.read("commit", "--json", str(overlay), str(made)))  # the base is remembered
    assert (report["base"], report["deleted"]) == (image, 1)
    if name == "new.oci.tar":
        runner.read("convert", str(made), str(runner.home / "new.sif"))
        made = runner.home / "new.sif"
    check(runner, made)


def test_commit_twice_gives_the_same_bytes(runner: Runner, image: str, overlay: Path) -> None:
    change(runner, image, overlay)
    made = [runner.home / name for name in ("one.sif", "two.sif")]
    for path in made:
        runner.read("commit", str(overlay), str(path), env={"SOURCE_DATE_EPOCH": "1700000000"})
    assert made[0].read_bytes() == made[1].read_bytes()


@pytest.mark.parametrize("runner", ["root", "user"], indirect=True)  # whose kernel mounts it, and who needs a program
def test_commit_of_an_ext3_image(runner: Runner, image: str) -> None:
    for name in ("mkfs.ext3", "fuse2fs", "fuse-overlayfs"):
        require_program(name)
    overlay = runner.home / "overlay.img"
    runner.read("overlay", "create", str(overlay))
    change(runner, image, overlay)
    wait_until_unused(overlay)
    refused = runner.run("commit", str(overlay), str(runner.home / "new.sif"))
    assert "--base IMAGE" in refused.stderr
    runner.read("commit", "--base", image, str(overlay), str(runner.home / "new.sif"))
    check(runner, runner.home / "new.sif")


def test_commit_of_a_running_instance(runner: Runner, image: str, overlay: Path) -> None:
    runner.read("instance", "start", "--overlay", str(overlay), image, "mine")
    try:
        runner.read("exec", "instance://mine", "sh", "-c", CHANGE)
        runner.read("commit", "instance://mine", str(runner.home / "new.sif"))
    finally:
        runner.run("instance", "stop", "mine")
    check(runner, runner.home / "new.sif")


@pytest.mark.root
def test_commit_of_files_of_subordinate_ids(image: str, overlay: Path, runner: Runner) -> None:
    """What other users of the container own is closed to us outside of it."""
    require_root()
    require_program("newuidmap")
    ids = dict.fromkeys(("subuid", "subgid"), "subject:300000:65536\n")
    setup = f"mount --bind {make_etc(runner.folder / 'etc', [Account('subject', runner.uid, runner.home)], **ids)} /etc"
    script = f"{CHANGE}; busybox chown 5:6 /etc/made; chmod 600 /etc/made; mkdir /opt/shut; busybox chown 7 /opt/shut"
    words = ("exec", "--fakeroot", "--overlay", str(overlay), image, "sh", "-c", f"{script}; chmod 700 /opt/shut")
    done = run_after(setup, runner, *words)
    assert done.returncode == 0, done.stderr
    if (overlay / "upper/etc/made").stat().st_uid == runner.uid:
        pytest.skip("the user of the test has no subordinate ids here")
    made = runner.home / "new.sif"
    done = run_after(setup, runner, "commit", str(overlay), str(made))
    assert done.returncode == 0, done.stderr
    assert (
        runner.read("exec", "--fakeroot", str(made), "sh", "-c", "cat /etc/made; ls -d /opt/shut")
        == "made\n/opt/shut\n"
    )


def test_commit_says_what_is_missing(runner: Runner, image: str, overlay: Path) -> None:
    new = str(runner.home / "new.sif")
    assert "nowhere does not exist" in runner.run("commit", "nowhere", new).stderr
    assert_says(runner.run("commit", str(overlay), new).stderr, "build/no-directory", "upper")
    runner.read("exec", "--overlay", str(overlay), image, "true")
    assert "nothing was changed" in runner.run("commit", str(overlay), new).stderr
    assert "no commands are recorded" in runner.run("commit", "--recipe", str(overlay)).stderr
    secret = runner.home / "secret"
    secret.write_bytes(b"0\t/\ttouch secret\0")
    give_to(runner, runner.home)
    (overlay / "upper/.kedge-commands").symlink_to(secret)  # as a program in the container may do
    assert "no commands are recorded" in runner.run("commit", "--recipe", str(overlay)).stderr
    (overlay / "upper/.kedge-commands").unlink()
    assert "name the new image" in runner.run("commit", str(overlay)).stderr
    assert not Path(new).exists()
    change(runner, image, overlay)
    Path(new).touch()
    assert "exists" in runner.run("commit", str(overlay), new).stderr
    (overlay / ".kedge-base").unlink()
    assert "--base IMAGE" in runner.run("commit", "--force", str(overlay), new).stderr


def type_commands(runner: Runner, words: list[str], lines: list[str]) -> str:
    """Type lines into a shell on a terminal, one for each prompt."""
    terminal, inside = pty.openpty()
    child = subprocess.Popen(
        runner.argv(*words), env={**runner.variables(), "TERM": "dumb"}, cwd=runner.home, stdin=inside, stdout=inside,
        stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    seen = b""
    for line in [*lines, "exit"]:
        while not seen.endswith(b"> "):
            seen += os.read(terminal, 4096)
        os.write(terminal, line.encode() + b"\n")
        seen += os.read(terminal, 4096)
    child.wait(60)
    os.close(terminal)
    return seen.decode()


def test_commit_prints_typed_commands_as_a_recipe(runner: Runner, overlay: Path) -> None:
    runner.read("pull", "--sandbox", str(runner.home / "bash"), "host:/bin/bash,/bin/sh,/bin/ls,/bin/mkdir,/bin/touch")
    image = runner.home / "bash"
    shell = ["shell", "--record", "--fakeroot", "--overlay", str(overlay), str(image)]
    type_commands(runner, shell, ["mkdir /opt/code", "ls /", "false", "cd /opt/code"])
    type_commands(runner, shell, ["cd /opt/code && touch 'a b'"])
    recipe = runner.read("commit", "--recipe", str(overlay))
    assert recipe == (
        f"Bootstrap: localimage\nFrom: {image}\n\n%post\n    mkdir /opt/code\n    cd /opt/code\n"
        "    cd /opt/code && touch 'a b'\n"
    )
    (runner.home / "a.def").write_text(recipe)
    runner.read("build", "--sandbox", str(runner.home / "built"), "a.def")
    runner.read("commit", str(overlay), str(runner.home / "new"))
    for name in ("built", "new"):
        assert runner.read("exec", str(runner.home / name), "ls", "-A", "/opt/code") == "a b\n"
    for options in (("--dockerfile",), ("--recipe", "--dockerfile")):
        assert runner.read("commit", *options, str(overlay)).startswith(f"FROM {image}\nRUN <<'END'\n")


SETUP = 'from setuptools import setup\nsetup(name="pt_bench", version="0.1", packages=["pt_bench"])\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "python3 -m pip install -q --no-build-isolation --no-deps -e .",
        pytest.param("python3 setup.py -q develop", marks=pytest.mark.long),  # the other way into the same directory
    ],
)
def test_commit_editable_installs_survive(runner: Runner, overlay: Path, command: str) -> None:
    image = make_python_image(runner)
    code = runner.home / "code"
    (code / "pt_bench").mkdir(parents=True)
    (code / "setup.py").write_text(SETUP)
    (code / "pt_bench/__init__.py").write_text("NAME = 'first'\n")
    give_to(runner, code)
    words = [word for name, value in PIP.items() for word in ("--env", f"{name}={value}")]
    layered = ("exec", "--fakeroot", "--bind", str(code), *words, "--overlay", str(overlay), str(image))
    runner.read(*layered, "sh", "-c", f"cd {code} && {command}")
    ask = ("python3", "-c", "import pt_bench; print(pt_bench.NAME)")
    assert runner.read(*layered, *ask, cwd="/") == "first\n"
    (code / "pt_bench/__init__.py").write_text("NAME = 'edited'\n")
    made = runner.home / "new"
    runner.read("commit", str(overlay), str(made))
    assert runner.read("exec", "--bind", str(code), str(made), *ask, cwd="/") == "edited\n"
