# SPDX-License-Identifier: BSD-3-Clause
"""A definition file wants a program of its own directory started on the host: it is called python and asked as one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kedge.builds.bases.bases import list_prefixes, list_shown
from kedge.errors import ProgramFailed
from kedge.image.host_programs.python_environment import ask_python
from tests.builders.builds import Workshop
from tests.builders.containers import give_to
from tests.builders.rows import each_row
from tests.builders.strangers import KEY, find_key, plant_key
from tests.requirements import require_program
from tests.wording import assert_says

# Leaves a mark where it can, looks for the key, and answers with what it found, or strangely.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    FILE *mark = fopen("MARK", "w");
    if (mark) { fputs("ran\n", mark); fclose(mark); }
    char key[200] = "nothing";
    FILE *file = fopen("KEY", "r");
    if (file) { fgets(key, sizeof key, file); fclose(file); }
    fprintf(stderr, "found %s\n", key);
    printf("ANSWER\n");
    return 0;
}
"""
WAYS = ("build", "dry-run")
NAMES = (
    "./x/python3",
    "x/python3",
    "{context}/x/python3",
    "bash,./x/python3",
    "./x/python3+numpy",
    "../context/x/python3",
)


def plant(shop: Workshop, mark: Path, place: Path, answer: str = "{}") -> Path:
    """The program, compiled: scripts are packed and not asked."""
    text = PROGRAM.replace("MARK", str(mark)).replace("KEY", str(shop.runner.home / ".ssh/id_ed25519"))
    place.parent.mkdir(parents=True, exist_ok=True)
    source = place.with_suffix(".c")
    source.write_text(text.replace("ANSWER", answer.replace('"', '\\"')))
    subprocess.run([require_program("gcc"), "-o", str(place), str(source)], check=True)
    give_to(shop.runner, place.parent)
    return place


@pytest.fixture(name="mark")
def make_mark(shop: Workshop) -> Path:
    plant_key(shop)
    return shop.runner.home / "PWNED"


@each_row("way", WAYS)
@each_row("name", NAMES)
def test_program_of_the_recipe_is_not_started(shop: Workshop, mark: Path, name: str, way: str) -> None:
    if not (shop.context / "x/python3").exists():
        plant(shop, mark, shop.context / "x/python3")
    shop.write("x.def", f"Bootstrap: host\nFrom: {name.format(context=shop.context)}\n")
    done = shop.start(*(("--dry-run",) if way == "dry-run" else ()), "out.sif", "x.def")
    assert not mark.exists(), done.stderr
    assert done.returncode == 90, done.stderr
    assert "x.def:2:" in done.stderr
    assert "programs of PATH only" in done.stderr
    assert "localimage" in done.stderr


@each_row("way", WAYS)
def test_python_of_path_is_asked_in_a_container(shop: Workshop, mark: Path, way: str) -> None:
    """One that is not what it seems: it sees no home, and leaves nothing there."""
    folder = shop.runner.folder / "tools/bin"
    plant(shop, mark, folder / "python3", '{"strange": 1}')
    shop.write("x.def", "Bootstrap: host\nFrom: python3\n")
    words = ("--dry-run",) if way == "dry-run" else ()
    done = shop.start(*words, "out.sif", "x.def", env={"PATH": f"{folder}:/usr/bin:/bin"})
    assert not mark.exists(), done.stderr
    assert KEY not in done.stderr + done.stdout
    assert done.returncode == 42, done.stderr
    assert_says(done.stderr, "image/did-not-list-packages")
    assert "bug" not in done.stderr


def test_python_that_lists_the_home_gives_nothing_of_it(shop: Workshop, mark: Path) -> None:
    folder, home = shop.runner.folder / "tools/bin", shop.runner.home
    places = f'"prefixes": [], "library": ["{home}"], "dynload": [], "zip": [], "files": ["{home}/.ssh/id_ed25519"]'
    plant(shop, mark, folder / "python3", f'{{{places}, "missing": [], "editable": []}}')
    shop.write("x.def", "Bootstrap: host\nFrom: python3\n")
    done = shop.start("--format", "sandbox", "out", "x.def", env={"PATH": f"{folder}:/usr/bin:/bin"})
    assert done.returncode == 30, done.stderr
    assert_says(done.stderr, "image/your-home-directory")
    assert not (shop.context / "out").exists() or find_key(shop.context / "out") == []


@each_row(
    "answer",
    [b"", b"nothing", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"prefixes": 3}',
     b'{"prefixes": ["a"], "library": [], "dynload": [], "zip": [], "files": [], "missing": [], "editable": []}',
     b'{"prefixes": [], "library": [], "dynload": [], "zip": [], "files": [], "missing": [1], "editable": []}',
     b'{"prefixes": [], "library": [], "dynload": [], "zip": [], "files": [[]], "missing": [], "editable": []}'],
)  # fmt: skip
def test_strange_answers_have_a_name(answer: bytes) -> None:
    with pytest.raises(ProgramFailed, match="did not list its packages"):
        ask_python("/opt/x/python3", (), lambda _words, _folders: answer)


def test_interpreter_sees_its_own_directories_and_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/env/bin", "opt/python/bin", "opt/env/bin", "opt/links"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "opt/python/bin/python3").touch()
    (tmp_path / "opt/env/pyvenv.cfg").touch()
    (tmp_path / "opt/env/bin/python3").symlink_to(tmp_path / "opt/links/python3")
    (tmp_path / "opt/links/python3").symlink_to("../python/bin/python3")
    found = list_prefixes(str(tmp_path / "opt/env/bin/python3"))
    assert found == [str(tmp_path / "opt/env"), str(tmp_path / "opt/links"), str(tmp_path / "opt/python")]
    homes = [str(tmp_path), str(tmp_path / "home"), str(tmp_path / "home/env/bin"), "/", "/usr/lib", "/nowhere"]
    assert list_shown([*found, str(tmp_path / "opt/python/bin"), *homes]) == sorted(found)
