# SPDX-License-Identifier: BSD-3-Clause
"""Wants its Python modules loaded: a directory with a `kedge.py`, `json.py`, `rich.py`, … in which users call kedge.

Every verb that starts a Python is run there as an ordinary user, with the PYTHONPATHs that name the current directory
without saying so. Each module writes its name down when it is loaded, and with it the command that loaded it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.images import add_rich_image
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.fakes.registry import FakeRegistry
from tests.programs import read_program
from tests.requirements import REPOSITORY, require_program

PYTHON = "/usr/bin/python3"  # the system's, which every user can read
DEPENDENCIES = ("urllib3", "zstandard", "zlib_ng", "lz4", "rich", "cryptography", "shtab", "socks", "brotli")
# The interpreter imports these, as PYTHONPATH says, before any line of kedge's is run.
EARLY = {"encodings"}
# With -m it imports importlib, warnings, contextlib and what these need, too; but none of these.
LATE = {
    *DEPENDENCIES,
    *["__future__", "json", "random", "argparse", "subprocess", "tomllib", "hashlib", "socket", "shutil"],
}
CUSTOMS = ("sitecustomize", "usercustomize")
SEARCH_PATHS = [None, ":/nowhere", "lib:."]
FULL = ":/nowhere"  # an empty part is the current directory for every Python: with the others one verb of each kind
MARKING = """
import os, sys
with open({marks!r}, "a") as file:
    file.write({name!r} + " loaded by " + " ".join(sys.orig_argv) + "\\n")
"""
LIBRARY = read_program("use_the_library")


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile directory, and a user who stands in it."""

    runner: Runner
    kedge: tuple[str, ...]
    folder: Path
    marks: Path
    image: str
    reference: str

    def variables(self, search: str | None) -> dict[str, str]:
        """As the user has them; a cache, a node and a queue for each way of searching, so that each starts anew."""
        place = self.runner.home / f"state-{search}".replace("/", "_").replace(":", "_")
        own = {"HOME": str(self.runner.home), "PATH": f"{place}/bin:/usr/bin:/bin", "XDG_STATE_HOME": f"{place}/state"}
        own |= {"KEDGE_NODEDIR": f"{place}/node", "KEDGE_CACHEDIR": f"{place}/cache"}
        own |= {"XDG_DATA_HOME": f"{place}/data", "PYTHONDONTWRITEBYTECODE": "1"}
        return own if search is None else {**own, "PYTHONPATH": search}

    def call(self, search: str | None, *words: str, status: int | None = 0) -> str:
        """Run a command line in the directory; what it printed.

        What a user or a job's script starts by its name may load CUSTOMS, which happens before us; our children never.
        """
        self.marks.write_text("")
        self.marks.chmod(0o666)
        argv = self.runner.argv()
        user = argv[: argv.index(sys.executable)]
        done = subprocess.run(
            [*user, *words],
            env=self.variables(search),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        loaded = [mark for mark in self.marks.read_text().splitlines() if not is_early(mark, search)]
        assert not loaded, f"{words}\n" + "\n".join(loaded)
        assert status is None or done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def do(self, search: str | None, *words: str, status: int | None = 0) -> str:
        """Run a verb of kedge."""
        return self.call(search, *self.kedge, *words, status=status)


def is_early(mark: str, search: str | None) -> bool:
    """Whether it was loaded, as PYTHONPATH says, before a line of ours was run; never so in children of our own."""
    is_ours = " -P " in mark or not (search or "/runner.py" in mark)
    return mark.startswith(CUSTOMS) and not is_ours


def fill_hostile(folder: Path, marks: Path, names: set[str]) -> Path:
    """Modules of these names, also one directory further down."""
    for place in (folder, folder / "lib"):
        place.mkdir()
        for name in names:
            (place / f"{name}.py").parent.mkdir(exist_ok=True)
            (place / f"{name}.py").write_text(MARKING.format(marks=str(marks), name=name))
    return folder


def install(folder: Path) -> tuple[str, ...]:
    """kedge in a virtual environment with an interpreter of its own: the files that a wheel's installation leaves."""
    subprocess.run([PYTHON, "-m", "venv", "--copies", "--without-pip", str(folder)], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    shutil.copytree(REPOSITORY / "src/kedge", packages / "kedge")  # with what is compiled, as installers leave it
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("kedge", "kedge-pyxis"):
        text = (REPOSITORY / "scripts" / name).read_text()
        (folder / "bin" / name).write_text(text.replace("#!python", f"#!{folder}/bin/python", 1))
        (folder / "bin" / name).chmod(0o755)
    return (str(folder / "bin/kedge"),)


@pytest.fixture(scope="module")
def attack() -> Iterator[Attack]:
    for runner in each_role("user"):
        require_program("setpriv")
        names = {*sys.stdlib_module_names, *DEPENDENCIES, *CUSTOMS, "kedge", "kedge/__init__", "kedge/__main__"} - EARLY
        folder = fill_hostile(runner.home / "project", runner.folder / "marks", names)
        fill_hostile(runner.home / "without-kedge", runner.folder / "marks", LATE)
        kedge = install(runner.home / "venv")
        image = make_sandbox(runner.home / "image")
        give_to(runner, runner.home)
        with FakeRegistry() as registry:
            add_rich_image(registry)
            reference = f"docker://{registry.host}/team/rich:1"
            yield Attack(runner, kedge, folder, runner.folder / "marks", str(image), reference)


@EVERY
@each_row("search", SEARCH_PATHS)
def test_verbs_that_make_images_ready(attack: Attack, search: str | None, is_every: bool) -> None:
    attack.do(search, "exec", attack.reference, "true")
    if search != FULL and not is_every:
        return
    attack.do(search, "exec", "--pull", "always", "--json", attack.reference, "true")
    attack.do(search, "unpack", "--pull", "always", attack.reference)
    attack.do(search, "pull", "--force", "pulled.sif", attack.reference)
    attack.do(search, "exec", "--root-from", "unpack", "pulled.sif", "true")
    attack.do(search, "inspect", attack.reference)
    attack.do(search, "pull", "--force", "tools.sif", "host:sh,true")


@EVERY
@each_row("search", SEARCH_PATHS)
def test_verbs_of_jobs_instances_and_the_doctor(attack: Attack, search: str | None, is_every: bool) -> None:
    attack.do(search, "submit", "--site", "local", "--time", "1m", "--name", "first", attack.image, "true")
    attack.do(search, "wait", "--site", "local", "first", status=None)
    if search != FULL and not is_every:
        return
    assert "first" in attack.do(search, "jobs", "--site", "local", "--all", status=None)
    attack.do(search, "alloc", "--site", "local", "--time", "1m", attack.image, "true", status=None)
    attack.do(search, "instance", "start", attack.image, "one")
    attack.do(search, "exec", "instance://one", "true")
    attack.do(search, "instance", "stop", "one")
    attack.do(search, "doctor", status=None)


@EVERY
@each_row("search", SEARCH_PATHS)
def test_shims(attack: Attack, search: str | None, is_every: bool) -> None:
    place = Path(attack.variables(search)["KEDGE_NODEDIR"]).parent / "bin"
    attack.do(search, "shim", "install", "--dir", str(place))
    shim = str(place / "apptainer")
    attack.call(search, shim, "exec", attack.image, "true")
    if search != FULL and not is_every:
        return
    attack.call(search, shim, "exec", "--pull", "always", attack.reference, "true", status=None)
    attack.call(search, shim, "pull", "--force", "shimmed.sif", attack.reference)
    attack.call(search, str(place / "run-singularity"), attack.image)


@each_row("search", SEARCH_PATHS)
def test_importer_of_pyxis(attack: Attack, search: str | None) -> None:
    program = f"{attack.kedge[0]}-pyxis"
    path = attack.call(search, program, "get", attack.reference).strip()
    assert path.endswith(".sqsh")
    attack.call(search, program, "release")


@each_row("search", SEARCH_PATHS)
def test_a_program_that_uses_the_library(attack: Attack, search: str | None) -> None:
    """The program's own process is the user's; what it starts is ours."""
    python = str(Path(attack.kedge[0]).with_name("python"))
    program = attack.runner.home / "program/program.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(LIBRARY)
    place = Path(attack.variables(search)["KEDGE_NODEDIR"]).parent
    place.mkdir(exist_ok=True)
    for path in (program.parent, program, place):
        os.chown(path, attack.runner.uid, attack.runner.uid)
    assert attack.call(None, python, str(program), attack.image, search or "") == "done\n"


@each_row("search", SEARCH_PATHS)
def test_kedge_started_as_a_module(attack: Attack, search: str | None) -> None:
    """`python -m kedge` looks for kedge in the current directory; when none is there, nothing else is taken from it."""
    python = str(Path(attack.kedge[0]).with_name("python"))
    attack = replace(attack, folder=attack.runner.home / "without-kedge", kedge=(python, "-m", "kedge"))
    attack.do(search, "exec", "--pull", "always", attack.reference, "true")
    if search == FULL:
        attack.do(search, "pull", "--force", "pulled.sif", attack.reference)
        attack.do(search, "--help")
