# SPDX-License-Identifier: BSD-3-Clause
"""What a start costs a file system: which modules it loads and how many files it touches. Ceilings only ever go down.

Every rank of a job pays this, often from a shared file system. Times are measured by bench/start, not here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.requirements import REPOSITORY, open_way, require_program, require_root

PACKAGE = REPOSITORY / "src/kedge"

# What the interpreter itself and `site` load differs between versions; these are ours to choose.
ALLOWED = {"__future__", "errno", "_ctypes", "fcntl", "pwd", "grp", "gc", "marshal"}
HEAVY = {
    *("re", "typing", "dataclasses", "enum", "pathlib", "json", "argparse", "subprocess", "functools", "contextlib"),
    *("inspect", "hashlib", "socket", "threading", "shutil", "tempfile", "logging", "tomllib", "signal", "ctypes"),
    *("struct", "types", "kedge.errors"),
}
MODULES = 24  # of kedge, six of them the packages that the others lie in
OPENED = 59  # files outside of the image and of what is made for it: what the issue of a shared file system is
CALLS = 228  # that name a file of kedge's, of the image or of the container; those of the name service are the host's


class Installed:
    """A copy of kedge that belongs to root and that users cannot write to."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.folder = runner.folder / "installed"
        self.package = self.folder / "kedge"
        shutil.copytree(PACKAGE, self.package)
        open_way(self.folder)
        self.program = (sys.executable, "-E", "-P", str(self.package / "__main__.py"))

    def compile(self) -> None:
        """What pip does when it installs, as far as the checkout has not done it."""
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self.package)], check=True)

    def trace(self, trace: Path, *words: str) -> list[str]:
        """The calls that name a file, from the start of the interpreter to the end."""
        strace = [require_program("strace"), "-f", "-qq", "-e", "trace=%file", "-o", str(trace)]
        argv = as_user(self.runner, *self.program, *words)
        subprocess.run([*strace, *argv], env=self.runner.variables(), check=True, cwd=self.runner.home)
        lines = trace.read_text().splitlines()
        return lines[next(index for index, line in enumerate(lines) if f'execve("{sys.executable}"' in line) :]


@pytest.fixture(scope="module")
def installed(runner: Runner) -> Iterator[Installed]:
    require_root()
    made = Installed(runner)
    made.compile()
    yield made
    shutil.rmtree(made.folder)


def find_script() -> list[str]:
    """The `kedge` that is installed beside this interpreter."""
    script = Path(sys.executable).with_name("kedge")
    if not script.exists():
        pytest.skip("kedge is not installed beside this interpreter")
    return [sys.executable, str(script)]


def as_user(runner: Runner, *argv: str) -> list[str]:
    words = runner.argv()
    return [*words[: words.index(sys.executable)], *argv]


def list_modules(runner: Runner, *argv: str) -> set[str]:
    done = runner.call(as_user(runner, argv[0], "-X", "importtime", *argv[1:]))
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_start_loads_no_heavy_module(runner: Runner, image: str) -> None:
    nothing = list_modules(runner, sys.executable, "-c", "pass")
    loaded = list_modules(runner, *find_script(), "exec", image, "true") - nothing
    own = {name for name in loaded if name.startswith("kedge")}
    assert not loaded & HEAVY
    assert loaded - own <= ALLOWED
    assert len(own) <= MODULES, sorted(own)


def test_version_loads_next_to_nothing(runner: Runner) -> None:
    own = {name for name in list_modules(runner, *find_script(), "--version") if name.startswith("kedge")}
    assert own == {"kedge", "kedge.cli", "kedge.cli.entry", "kedge.base", "kedge.base.release"}


@pytest.mark.root
def test_start_touches_few_files(installed: Installed, image: str, tmp_path: Path) -> None:
    lines = installed.trace(tmp_path / "trace", "exec", image, "true")
    places = (str(installed.folder), str(installed.runner.folder), "/proc/", "/sys", "/dev")
    calls = [line for line in lines if any(f'"{place}' in line for place in places)]
    # how many kinds of `__init__….so` an interpreter looks for in vain differs: three with Debian 12, four with 13
    calls = [line for line in calls if not re.search(r'\.so", .*ENOENT', line)]
    assert len(calls) <= CALLS, "\n".join(calls)
    inside = next(index for index, line in enumerate(lines) if "pivot_root" in line)
    opened = re.compile(r'open(?:at2?)?\((?:AT_FDCWD, )?"(/[^"]*)", (?!.*O_PATH).* = \d+$')
    names = [found[1] for line in lines[:inside] if (found := opened.search(line))]
    # what others put into the environment of these tests is read by `site` at every start of any program
    others = ("/proc/", image, str(installed.runner.folder / "node"), f"{sys.prefix}/lib", str(PACKAGE.parent))
    names = [name for name in names if not name.startswith(others)]
    if "/etc/nsswitch.conf" in names:  # which libraries a name service needs is the host's affair
        asked = names.index("/etc/nsswitch.conf")
        names[asked:] = [name for name in names[asked:] if not name.startswith(("/lib/", "/usr/lib/", "/etc/ld.so"))]
    assert len(names) <= OPENED, "\n".join(names)


@pytest.mark.root
def test_changed_install_runs_its_new_code(installed: Installed) -> None:
    """In place, by an administrator, with what was compiled before still there."""
    path = installed.package / "base/release.py"
    text = path.read_text()
    try:
        path.write_text(text.replace('VERSION = "0', 'VERSION = "9'))
        os.utime(path, (1_700_000_060, 1_700_000_060))
        done = Runner(installed.runner.folder, installed.runner.uid, program=installed.program).run("--version")
        assert done.stdout.startswith("kedge version 9")
    finally:
        path.write_text(text)
