# SPDX-License-Identifier: BSD-3-Clause
"""`%files` through the real Apptainer and through kedge: every kind of source to every kind of destination."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.apptainer import PEER_USER, Apptainer, apptainer_folder
from tests.builders.containers import Runner, make_runner
from tests.requirements import require_user_namespaces

FILES = ("plain", "a.txt", "b.txt", "with space", "dir/one", "dir/sub/two", "dir/.hidden", "other dir/x y", "star*")
LINKS = {
    "link": "plain",
    "dirlink": "dir",
    "dir/inner": "one",
    "dir/up": "../plain",
    "broken": "nowhere",
    "chain": "link",
}
SOURCES = (
    *("plain", "'with space'", '"with space"', r"with\ space", "dir", "dir/", "dir/.", "dir/*", "*.txt", "[ab].txt"),
    *("?lain", "link", "dirlink", "dirlink/", "chain", "empty", "dir/sub", "dir/../plain", "./plain", "'other dir'"),
    *("other*", r"star\*", "star*", "dir/inner", "dir/up", "dir//sub", "dir/s*/t*", "FOLDER/plain", "FOLDER/dir"),
)
PLACES = ("new", "new2/", "folder", "folder/", "tolink", "tolink/", "a/b/c", "d/e/")
SINGLE = (
    *("broken /c0/x", "missing /c0/x", "mis*ing /c0/x", "$HOME/none /c0/x", "plain/ /c0/x", "{a,b}.txt /c0/x/"),
    *("plain /c0/file", "plain /c0/tofile", "dir /c0/file", "*.txt /c0/file", "plain", "dir", "link", "FOLDER/plain"),
)


@pytest.fixture(scope="module")
def peer() -> Iterator[Apptainer]:
    require_user_namespaces()
    with apptainer_folder() as made:
        for name in FILES:
            path = made.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        for name, target in LINKS.items():
            (made.folder / name).symlink_to(target)
        (made.folder / "empty").mkdir()
        (made.folder / "dir/sub").chmod(0o750)
        (made.folder / "b.txt").chmod(0o755)
        box = made.folder / "box"
        for name in ("bin", "etc"):
            (box / name).mkdir(parents=True)
        for name in ("passwd", "group"):
            (box / "etc" / name).write_text("")
        for number in range(len(SOURCES)):
            fill_place(box / f"c{number}")
        made.own(made.folder)
        yield made


@pytest.fixture(scope="module")
def runner(peer: Apptainer) -> Runner:
    return make_runner(peer.folder, PEER_USER)


def fill_place(folder: Path) -> None:
    """A directory of the base with all that a file may land on."""
    (folder / "folder/sub").mkdir(parents=True)
    (folder / "real").mkdir()
    for name in ("file", "folder/one", "folder/kept", "real/kept"):
        (folder / name).write_text("old")
    (folder / "tolink").symlink_to("real")
    (folder / "tofile").symlink_to("file")


def list_recipes(folder: Path) -> list[str]:
    """The lines of one recipe with all sources and places that go together, and of one for each of the others."""
    every = [f"{source} /c{number}/{place}" for number, source in enumerate(SOURCES) for place in PLACES]
    return [text.replace("FOLDER", str(folder)) for text in ("\n    ".join(every), *SINGLE)]


def read_tree(folder: Path) -> dict[str, tuple[str, str]]:
    """Kind, mode and content by path, without what says how the image was made."""
    tree = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)), path.lstat()
        if name.startswith((".singularity.d", "environment", "singularity", ".run", ".exec", ".shell", ".test")):
            continue
        if stat.S_ISLNK(status.st_mode):
            tree[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(status.st_mode):
            tree[name] = ("directory", oct(status.st_mode & 0o755))
        else:
            tree[name] = (oct(status.st_mode & 0o755), path.read_text())
    return tree


@pytest.mark.slow
def test_files_land_where_apptainer_puts_them(peer: Apptainer, runner: Runner) -> None:
    recipes = list_recipes(peer.folder)
    for number, lines in enumerate(recipes):
        (peer.folder / f"{number}.def").write_text(f"Bootstrap: localimage\nFrom: box\n%files\n    {lines}\n")
    words = [("build", "--sandbox", f"theirs-{number}", f"{number}.def") for number in range(len(recipes))]
    differences = []
    for number, (status, _) in enumerate(peer.answer(*words)):
        done = runner.run("build", "--sandbox", f"ours-{number}", f"{number}.def", cwd=peer.folder)
        ours, theirs = peer.folder / f"ours-{number}", peer.folder / f"theirs-{number}"
        if bool(status) != bool(done.returncode):
            differences.append(
                f"{recipes[number][-60:]}: Apptainer {status}, kedge {done.returncode} {done.stderr[-300:]}"
            )
        elif not status:
            changes = set(read_tree(ours).items()) ^ set(read_tree(theirs).items())
            differences += [f"{recipes[number][-60:]}: {change}" for change in sorted(changes)]
    assert not differences, "\n".join(differences)
