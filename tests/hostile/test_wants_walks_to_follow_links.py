# SPDX-License-Identifier: BSD-3-Clause
"""The owner of a directory, or a program in an instance, exchanges directories for links while kedge reads them.

It wants the key in the home of who reads, or that the modes in that home are changed. First before each single call of
the kernel that a reading makes, so that no moment is left out; then by commands, while a program does it all the time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.base.tree import ContentSource, Node, NodeKind, walk
from kedge.builds.copies.context import open_context
from kedge.builds.copies.copy_files import CopiedContent
from kedge.errors import KedgeError
from kedge.image.layers.directory_changes import DirectorySnapshot, read_changes
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.image.layers.upper_directory import read_upper
from kedge.system import libc
from kedge.system.foreign_trees import has_foreign_files
from tests.builders.builds import SHELL, Workshop
from tests.builders.containers import USER, Runner, each_role, give_to, make_sandbox
from tests.builders.link_swaps import (
    DECOY,
    KEY,
    KEY_FILE,
    Scene,
    compile_loop,
    exchanging,
    exchanging_by,
    plant,
    read_under_attack,
)
from tests.builders.rows import each_row
from tests.requirements import require_root
from tests.unit.image.layers.test_directory_tree import ordinary_user
from tests.wording import assert_says

ATTACKER = USER + 1
MANY = 2000  # files of a directory that is read between the look at another one and its reading
# What is exchanged, and the calls after which it is put back, which differs where names lead to the key; 0: it is not
EXCHANGES = (("above", 2), ("folder", 0), ("folder", 2), ("file", 2), ("pipe", 0), ("moved", 0))
ROUNDS = pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])


def read_for_convert(tree: Path) -> bytes:
    root, source = read_folder(tree, FolderOptions(all_root=True))
    return join_all(root, source)


def read_for_commit(tree: Path) -> bytes:
    assert not has_foreign_files(tree)
    root, source = read_upper(tree)
    with contextlib.closing(source):
        return join_all(root, source)


def read_for_step(tree: Path) -> bytes:
    root, source = read_changes(DirectorySnapshot({}), tree)
    with contextlib.closing(source):
        return join_all(root, source)


def read_for_copy(tree: Path) -> bytes:
    origin = open_context(tree)
    names = "".join(origin.expand("sub/.s*/*")).encode()
    root = origin.read_tree("/")
    assert root is not None
    origin.digest_tree(root)
    return names + join_all(root, CopiedContent())


READINGS = {"convert": read_for_convert, "commit": read_for_commit, "step": read_for_step, "copy": read_for_copy}


def join_all(root: Node, source: ContentSource) -> bytes:
    """Names and contents of all files."""
    nodes = list(walk(root))
    contents = [b"".join(source.chunks(node)) for _, node in nodes if node.kind is NodeKind.FILE and node.size]
    return b"\n".join([path for path, _ in nodes] + contents)


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before Linux 5.6 have no openat2."""

    def refuse(*_arguments: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(libc, "open_beneath", refuse, raising=False)


@pytest.mark.parametrize("reading", READINGS)
@each_row("way,stay", EXCHANGES)
def test_exchange_before_each_call_of_the_kernel(reading: str, way: str, stay: int) -> None:
    attack_each_call(reading, way, stay)


@pytest.mark.usefixtures("old_kernel")
@each_row("way,stay", EXCHANGES)
def test_exchange_before_each_call_of_an_old_kernel(way: str, stay: int) -> None:
    attack_each_call("commit", way, stay)


def attack_each_call(reading: str, way: str, stay: int) -> None:
    """Read the tree once for each call of the kernel that this makes, and exchange before that one."""
    read = READINGS[reading]
    with ordinary_user() as place:
        scene = Scene(place, way, closed=reading == "commit")
        modes = scene.read_modes()
        whole, calls = read_under_attack(scene, read, ())
        assert DECOY.encode() in expect_bytes(whole)
        assert calls > 20
        refused = 0
        for first in range(1, calls + 1):
            moments = (first, first + stay) if stay else (first,)
            got, _ = read_under_attack(scene, read, moments)
            shown = got.message.encode() if isinstance(got, KedgeError) else got
            assert KEY.encode() not in shown, moments
            assert b"moved" not in shown.replace(b"removed", b""), moments
            assert scene.read_modes() == modes, moments
            refused += isinstance(got, KedgeError) and "changed while it was being read" in got.message
            scene.settle()
        assert refused
        assert expect_bytes(read_under_attack(scene, read, ())[0]) == whole


def expect_bytes(got: bytes | KedgeError) -> bytes:
    assert isinstance(got, bytes), got
    return got


def test_mode_that_its_owner_changed_meanwhile_is_left(tmp_path: Path) -> None:
    del tmp_path
    with ordinary_user() as place:
        closed, other = place / "tree/closed", place / "tree/other"
        for folder in (closed, other):
            folder.mkdir(parents=True)
            folder.chmod(0o277)
        _, source = read_folder(place / "tree", FolderOptions(unlocks=True))
        assert closed.stat().st_mode & 0o777 == (0o777 if os.geteuid() else 0o277)
        closed.chmod(0o711)
        source.close()
        assert [folder.stat().st_mode & 0o777 for folder in (closed, other)] == [0o711, 0o277]


def test_upper_directory_is_no_link(tmp_path: Path) -> None:
    plant(tmp_path / "home", KEY)
    (tmp_path / "upper").symlink_to(tmp_path / "home")
    with pytest.raises(KedgeError, match="upper"):
        read_upper(tmp_path / "upper")
    tree, _ = read_folder(tmp_path / "upper")  # what the user names may be one
    assert b".ssh" in tree.children


# -- commands, while names are exchanged all the time


@pytest.fixture(name="victim")
def open_victim() -> Iterator[Runner]:
    """An ordinary user with a key."""
    require_root()
    for runner in each_role("user"):
        plant(runner.home, KEY)
        give_to(runner, runner.home / ".ssh")
        runner.home.chmod(0o700)
        yield runner


@pytest.fixture
def box(victim: Runner) -> Path:
    """A root file system of another user, in which `sub` is exchanged for a link to the victim's home."""
    place = victim.folder / "theirs"
    place.mkdir()
    make_sandbox(place / "box")
    plant(place / "box/sub", DECOY).chmod(0o644)
    fill(place / "box/zz")
    for path in (place / "box/sub/.ssh", place / "box/sub"):
        path.chmod(0o755)
    (place / "link").symlink_to(victim.home)
    subprocess.run(["chown", "-hR", f"{ATTACKER}:{ATTACKER}", str(place)], check=True)
    return place / "box"


def fill(folder: Path) -> None:
    folder.mkdir()
    for number in range(MANY):
        (folder / str(number)).write_text("")


def check_image(victim: Runner, done: subprocess.CompletedProcess[str], image: Path) -> bool:
    """Whether an image was made, which must not have the key; or the one error."""
    assert KEY not in done.stdout + done.stderr
    assert (victim.home / ".ssh").stat().st_mode & 0o7777 == 0o700
    if done.returncode:
        assert_says(done.stderr, "base/changed-while-being-read")
        assert not image.exists()
        return False
    found = victim.run("exec", "--containall", str(image), "sh", "-c", f"cat /*/{KEY_FILE}; ls -aR /sub /d")
    assert KEY not in found.stdout
    return True


@pytest.mark.root
@ROUNDS
@pytest.mark.parametrize("verb", ["convert", "build"])
def test_directory_of_another_user(victim: Runner, box: Path, verb: str, rounds: int) -> None:
    image = victim.home / "x.sif"
    order: Callable[[Path], list[str]] = {
        "convert": lambda path: ["convert", str(box), str(path)],
        "build": lambda path: ["build", str(path), str(box)],
    }[verb]
    program, names = compile_loop(victim.folder), (box / "sub", box.parent / "link")
    for number, trigger in enumerate([None, box / "zz"] * rounds):
        path = image.with_stem(f"x{number}")
        with exchanging(names, ATTACKER, program, trigger):
            check_image(victim, victim.run(*order(path)), path)
    assert check_image(victim, victim.run(*order(image)), image)


@pytest.mark.root
@ROUNDS
def test_context_of_another_user(victim: Runner, rounds: int) -> None:
    shop = Workshop.open(victim)
    plant(shop.context / "data/sub", DECOY)
    fill(shop.context / "data/zz")
    (shop.context.parent / "aside").symlink_to(victim.home)
    give_to(victim, shop.context)
    os.chown(shop.context.parent / "aside", victim.uid, victim.uid, follow_symlinks=False)
    shop.write("Dockerfile", f"{SHELL}COPY data /data\nRUN --mount=type=bind,source=data,target=/m cp -r /m /mounted\n")
    program, names = compile_loop(victim.folder), (shop.context / "data/sub", shop.context.parent / "aside")
    for number, trigger in enumerate([None, shop.context / "data/zz"] * rounds):
        path = shop.context / f"x{number}.sif"
        with exchanging(names, victim.uid, program, trigger):
            done = shop.start("--no-cache", path.name, "Dockerfile")
        assert KEY not in done.stdout + done.stderr
        assert (victim.home / ".ssh").stat().st_mode & 0o7777 == 0o700
        if done.returncode == 0:
            words = ("exec", "--containall", str(path), "sh", "-c", f"cat /*/*/{KEY_FILE}")
            assert KEY not in victim.run(*words).stdout


@pytest.mark.root
def test_running_instance(victim: Runner) -> None:
    """A program in a --containall instance, which sees nothing of the host, and whose overlay is committed."""
    image = give_to(victim, make_sandbox(victim.folder / "sandbox"))
    program = compile_loop(victim.folder)
    (image / "bin/exchange").write_bytes(program.read_bytes())
    (image / "bin/exchange").chmod(0o755)
    overlay = victim.home / "overlay"
    overlay.mkdir()
    give_to(victim, overlay)
    victim.read("instance", "start", "--containall", "--overlay", str(overlay), str(image), "mine")
    try:
        plot = f"mkdir -p /d/.ssh; echo {DECOY} > /d/{KEY_FILE}; chmod 0277 /d/.ssh; ln -s {victim.home} /l"
        victim.read("exec", "instance://mine", "sh", "-c", plot)
        loop = victim.argv("exec", "instance://mine", "/bin/exchange", "/d", "/l")
        with exchanging_by(loop, env=victim.variables(), cwd=victim.home, stdin=subprocess.DEVNULL):
            for number in range(3):
                path = victim.home / f"x{number}.sif"
                check_image(victim, victim.run("commit", "instance://mine", str(path)), path)
        made = victim.home / "after.sif"
        assert check_image(victim, victim.run("commit", "instance://mine", str(made)), made)
    finally:
        victim.run("instance", "stop", "mine")
