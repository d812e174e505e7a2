# SPDX-License-Identifier: BSD-3-Clause
"""`%files` through the real Apptainer and through kedge: every kind of source to every kind of destination.

What Apptainer did is recorded (`recorded.py`).
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from tests.builders.apptainer import apptainer_folder
from tests.builders.containers import Runner, give_to, warm_runner
from tests.interop.recorded import find_changes, recall

runner = warm_runner

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


def write_folder(folder: Path) -> None:
    """What the recipes copy, and the directory that they begin with."""
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    (folder / "empty").mkdir()
    (folder / "dir/sub").chmod(0o750)
    (folder / "b.txt").chmod(0o755)
    for name in ("bin", "etc"):
        (folder / "box" / name).mkdir(parents=True)
    for name in ("passwd", "group"):
        (folder / "box/etc" / name).write_text("")
    for number in range(len(SOURCES)):
        fill_place(folder / f"box/c{number}")
    for number, lines in enumerate(RECIPES):
        text = lines.replace("FOLDER", str(folder))
        (folder / f"{number}.def").write_text(f"Bootstrap: localimage\nFrom: box\n%files\n    {text}\n")


def fill_place(folder: Path) -> None:
    """A directory of the base with all that a file may land on."""
    (folder / "folder/sub").mkdir(parents=True)
    (folder / "real").mkdir()
    for name in ("file", "folder/one", "folder/kept", "real/kept"):
        (folder / name).write_text("old")
    (folder / "tolink").symlink_to("real")
    (folder / "tofile").symlink_to("file")


EVERY = [f"{source} /c{number}/{place}" for number, source in enumerate(SOURCES) for place in PLACES]
RECIPES = ("\n    ".join(EVERY), *SINGLE)  # all sources and places that go together, and one for each of the others
QUESTIONS = {str(number): (lines, FILES, LINKS) for number, lines in enumerate(RECIPES)}


def read_tree(folder: Path) -> dict[str, list[str]]:
    """Kind, mode and content by path, without what says how the image was made; the context is called FOLDER."""
    tree: dict[str, list[str]] = {}
    for path in folder.rglob("*"):
        name, status = str(path.relative_to(folder)).replace(folder.parent.name, "FOLDER"), path.lstat()
        if name.startswith((".singularity.d", "environment", "singularity", ".run", ".exec", ".shell", ".test")):
            continue
        if stat.S_ISLNK(status.st_mode):
            tree[name] = ["link", str(path.readlink())]
        elif stat.S_ISDIR(status.st_mode):
            tree[name] = ["directory", oct(status.st_mode & 0o755)]
        else:
            tree[name] = [oct(status.st_mode & 0o755), path.read_text()]
    return tree


def ask_apptainer(names: list[str]) -> dict[str, Any]:
    """The files of each image that it builds; None where it refuses."""
    with apptainer_folder() as peer:
        write_folder(peer.folder)
        peer.own(peer.folder)
        answers = peer.answer(*(("build", "--sandbox", f"out-{name}", f"{name}.def") for name in names))
        return {
            name: None if status else read_tree(peer.folder / f"out-{name}")
            for name, (status, _) in zip(names, answers, strict=True)
        }


@pytest.mark.slow
def test_files_land_where_apptainer_puts_them(runner: Runner) -> None:
    place, differences = runner.folder, []
    write_folder(place)
    give_to(runner, place)
    for number, theirs in recall("files", QUESTIONS, ask_apptainer).items():
        done = runner.run("build", "--sandbox", f"ours-{number}", f"{number}.def", cwd=place)
        shown = RECIPES[int(number)][-60:]
        if (theirs is None) != bool(done.returncode):
            differences.append(f"{shown}: Apptainer {theirs is None}, kedge {done.returncode} {done.stderr[-300:]}")
        elif theirs is not None:
            ours = read_tree(place / f"ours-{number}")
            names = sorted({*ours, *theirs})
            differences += [f"{shown}: {name}" for name in names if ours.get(name) != theirs.get(name)]
    assert not differences, "\n".join(differences)


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.root
def test_files_are_recorded_as_apptainer_copies_them() -> None:
    assert find_changes("files", QUESTIONS, ask_apptainer) == []
