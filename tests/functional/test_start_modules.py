# SPDX-License-Identifier: BSD-3-Clause
"""Starts from the archive of modules: which it has, how many files a start opens, and who may write it where."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.late_functions import LATE
from kedge.record_modules import INSPECTIONS, RECORDS
from kedge.start_modules import EARLY, EVERY_START, SOME_STARTS
from tests.builders.containers import Runner, run_after
from tests.functional.test_start_cost import PACKAGE, as_user, find_script, list_modules
from tests.requirements import open_way, require_program, require_root

# to have the archive
BEFORE = {
    "kedge",
    "kedge.cli",
    "kedge.late_functions",
    "kedge.lean_code",
    "kedge.module_archive",
    "kedge.record_modules",
    "kedge.start_modules",
}
CALLED = """
import os, sys
called = set()
def note(frame, event, argument):
    if event == 'call' and 'kedge/' in frame.f_code.co_filename:
        called.add(frame.f_code.co_filename.rpartition('src/')[2] + ' ' + frame.f_code.co_qualname)
def show(*words):
    sys.setprofile(None)
    print(*sorted(called), sep='\\n', flush=True)
    os._exit(0)
os.execve = show
from kedge.cli.entry import main
sys.argv[1:1] = ['exec']
sys.setprofile(note)
main()
"""
FLAGS = ("--contain", "--containall", "--fakeroot", "--writable-tmpfs", "--pid", "--nv", "--rocm", "--cleanenv")
OPENED = 60  # files outside of the image and of what is made for it: what the issue of a shared file system is
OWN = 4  # of kedge's: the package, its command line, the reader of the archive, the archive


class Installed:
    """A copy of kedge that belongs to root and that users cannot write to, without bytecode."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.folder = runner.folder / "installed"
        self.package = self.folder / "kedge"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        for path in self.package.rglob("*.py"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        open_way(self.folder)
        self.program = (sys.executable, "-E", "-P", str(self.package / "__main__.py"))

    @property
    def archive(self) -> Path:
        return self.package / f"__pycache__/start.{sys.implementation.cache_tag}.modules"

    def run_as_owner(self) -> None:
        """What an administrator does once."""
        subprocess.run([*self.program, "--version"], env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True)

    def run(self, *words: str) -> str:
        """As the user, who must be told nothing."""
        runner = Runner(self.runner.folder, self.runner.uid, program=self.program)
        done = runner.run(*words, env={"PYTHONDONTWRITEBYTECODE": ""})
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def list_opened(self, trace: Path, *words: str) -> list[str]:
        """The files that a start opens outside of the image, before it is inside."""
        strace = [require_program("strace"), "-f", "-qq", "-e", "trace=%file", "-o", str(trace)]
        argv = as_user(self.runner, *self.program, *words)
        subprocess.run([*strace, *argv], env=self.runner.variables(), check=True, cwd=self.runner.home)
        lines = trace.read_text().splitlines()
        begun = next(index for index, line in enumerate(lines) if f'execve("{sys.executable}"' in line)
        inside = next(index for index, line in enumerate(lines) if "pivot_root" in line)
        opened = re.compile(r'open(?:at2?)?\((?:AT_FDCWD, )?"(/[^"]*)", (?!.*O_PATH).* = \d+$')
        names = [found[1] for line in lines[begun:inside] if (found := opened.search(line))]
        return [name for name in names if not name.startswith((words[1], str(self.runner.folder / "node")))]


@pytest.fixture
def installed(runner: Runner) -> Iterator[Installed]:
    require_root()
    made = Installed(runner)
    yield made
    shutil.rmtree(made.folder)


def test_modules_of_every_start_are_those_of_a_plain_one(runner: Runner, image: str) -> None:
    loaded = {name for name in list_modules(runner, *find_script(), "exec", image, "true") if name.startswith("kedge")}
    assert loaded - BEFORE - {*EARLY, *EVERY_START} == set(), "add these to start_modules.EVERY_START"
    assert set(EVERY_START) - loaded == set(), "no start needs these: remove them there"


def test_modules_of_every_start_stand_behind_what_they_import() -> None:
    """Else they are found and loaded one by one, which is right, and slow."""
    code = (
        "import sys\nimport kedge.module_archive as archive\nfind = archive.ModuleArchive.find_spec\nasked = []\n"
        "archive.ModuleArchive.find_spec = lambda self, name, *rest: asked.append(name) or find(self, name, *rest)\n"
        "import kedge.cli.entry\narchive.load_together()\n"
        "archive.serve_modules('rank')\narchive.load_together('rank')\n"
        "print(*(name for name in asked if name[:6] == 'kedge.'))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-X", f"pycache_prefix={folder}", "-c", code]
        environment = {"PYTHONPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["kedge.cli.entry"], "these are imported before their turn"


@pytest.mark.parametrize("flag", FLAGS)
def test_modules_of_starts_with_flags_are_archived(runner: Runner, image: str, flag: str) -> None:
    loaded = {
        name for name in list_modules(runner, *find_script(), "exec", flag, image, "true") if name.startswith("kedge")
    }
    assert loaded - BEFORE - {*EARLY, *EVERY_START, *SOME_STARTS} == set(), "add these to start_modules.SOME_STARTS"


def test_modules_of_a_start_by_the_users_own_interpreter_are_archived(runner: Runner, image: str) -> None:
    """As those of Conda and uv are: an image must not reach the file, which costs modules of their own."""
    place = runner.home / "own"
    make = as_user(runner, sys.executable, "-m", "venv", "--copies", "--without-pip", str(place))
    subprocess.run(make, env=runner.variables(), check=True, cwd=runner.home)
    user = Runner(runner.folder, runner.uid, {"PYTHONPATH": str(PACKAGE.parent)})
    words = as_user(user, str(place / "bin/python"), "-X", "importtime", "-P", "-m", "kedge", "exec", image, "true")
    done = subprocess.run(words, env=user.variables(), capture_output=True, text=True, check=True, cwd=runner.home)
    loaded = set(re.findall(r"(kedge[\w.]*)$", done.stderr, re.MULTILINE))
    assert "kedge.runtime.start.exec_from_memory" in loaded
    assert loaded - BEFORE - {*EARLY, *EVERY_START, *SOME_STARTS} == set(), "add these to start_modules.SOME_STARTS"


def test_modules_of_the_list_are_there() -> None:
    names = [name for name in (*EARLY, *EVERY_START, *SOME_STARTS) if name.startswith("kedge.")]
    assert len(names) == len({*names})
    for name in names:
        path = PACKAGE / name.removeprefix("kedge.").replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name


def test_modules_of_a_recorded_start_are_archived(runner: Runner, image: str) -> None:
    record = str(runner.home / "record.json")
    words = (*find_script(), "exec", "--record-to", record, image, "true")
    loaded = {name for name in list_modules(runner, *words) if name.startswith("kedge")}
    assert "kedge.ops.records.recorder" in loaded
    known = {*EARLY, *EVERY_START, *RECORDS, *INSPECTIONS}
    assert loaded - BEFORE - known == set(), "add these to start_modules.RECORDS"


def test_late_functions_are_there() -> None:
    for name, functions in LATE.items():
        assert name in EVERY_START, f"{name} is not loaded with the others"
        path = PACKAGE / name.removeprefix("kedge.").replace(".", "/")
        tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
        defined = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert {*functions} <= defined, f"remove these of {name} from late_functions.LATE"


def test_plain_starts_call_no_late_function(runner: Runner, image: str) -> None:
    words = as_user(runner, sys.executable, "-c", CALLED, image, "/bin/true")
    environment = {**runner.variables(), "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=runner.home)
    called = {*done.stdout.splitlines()}
    assert "kedge/runtime/start/run.py run_container" in called
    late = {f"{name.replace('.', '/')}.py {each}" for name, functions in LATE.items() for each in functions}
    assert called & late == set(), "remove these from late_functions.LATE"


def test_version_loads_next_to_nothing(runner: Runner) -> None:
    own = {name for name in list_modules(runner, *find_script(), "--version") if name.startswith("kedge")}
    assert own - BEFORE == {"kedge.cli.entry", "kedge.release"}


@pytest.mark.root
def test_install_of_root_is_archived_by_root_alone(installed: Installed, image: str) -> None:
    assert installed.run("exec", image, "echo", "one") == "one\n"
    assert not list(installed.package.rglob("*.pyc"))
    installed.run_as_owner()
    assert installed.archive.stat().st_uid == 0
    before = installed.archive.stat().st_ino
    assert installed.run("exec", image, "echo", "two") == "two\n"
    assert installed.archive.stat().st_ino == before


@pytest.mark.root
def test_start_opens_few_files(installed: Installed, image: str, tmp_path: Path) -> None:
    installed.run_as_owner()
    opened = installed.list_opened(tmp_path / "trace", "exec", image, "true")
    assert len(opened) <= OPENED, "\n".join(opened)
    own = [name for name in opened if name.startswith(f"{installed.package}/") and not name.endswith("__main__.py")]
    assert len(own) <= OWN, "\n".join(own)


@pytest.mark.root
def test_changed_install_runs_its_new_code(installed: Installed, image: str) -> None:
    """In place, by an administrator, without anybody else to write the archive."""
    installed.run_as_owner()
    path = installed.package / "release.py"
    path.write_text(path.read_text().replace('VERSION = "0', 'VERSION = "9'))
    os.utime(path, (1_700_000_060, 1_700_000_060))
    assert installed.run("--version").startswith("kedge version 9")
    installed.run_as_owner()
    assert installed.run("--version").startswith("kedge version 9")


@pytest.mark.root
def test_full_disk_costs_the_archive_alone(installed: Installed, image: str) -> None:
    """Bytecode goes to a file system with room for a few files of it."""
    prefix = installed.folder / "bytecode"
    prefix.mkdir(mode=0o755)
    runner = Runner(installed.runner.folder, installed.runner.uid, program=installed.program[:1])
    mount = f"mount -t tmpfs -o size=64k,uid={runner.uid},mode=755 none {prefix}"
    words = ("-X", f"pycache_prefix={prefix}", *installed.program[1:], "exec", image, "echo", "one")
    for _ in range(2):
        done = run_after(mount, runner, *words, env={"PYTHONDONTWRITEBYTECODE": ""})
        assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")


@pytest.mark.root
def test_first_starts_at_once_leave_one_archive(installed: Installed, image: str) -> None:
    """The user's own installation, and a job's ranks that are the first to run it."""
    for path in [installed.package, *installed.package.rglob("*")]:
        os.chown(path, installed.runner.uid, installed.runner.uid)
    runner = Runner(installed.runner.folder, installed.runner.uid, program=installed.program)
    environment = {**runner.variables(), "PYTHONDONTWRITEBYTECODE": ""}
    words = runner.argv("exec", image, "echo", "one")
    running = [
        subprocess.Popen(
            words, env=environment, cwd=runner.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    assert [each.communicate(timeout=120) for each in running] == [("one\n", "")] * 6
    assert [path.name for path in installed.archive.parent.glob("start.*")] == [installed.archive.name]
    began = time.time()
    assert installed.run("exec", image, "echo", "two") == "two\n"
    assert installed.archive.stat().st_mtime < began, "written again"
