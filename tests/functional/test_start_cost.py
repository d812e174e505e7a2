# SPDX-License-Identifier: BSD-3-Clause
"""What a start costs a file system: which modules it loads and how many files it touches. Ceilings only ever go down.

Every rank of a job pays this, often from a shared file system. Times are measured by bench/start, not here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.requirements import REPOSITORY, open_way, require_program

PACKAGE = REPOSITORY / "src/kedge"

# What the interpreter itself and `site` load differs between versions; these are ours to choose.
ALLOWED = {"__future__", "errno", "_ctypes", "fcntl", "pwd", "grp", "gc", "marshal"}
HEAVY = {
    *("re", "typing", "dataclasses", "enum", "pathlib", "json", "argparse", "subprocess", "functools", "contextlib"),
    *(
        "inspect",
        "hashlib",
        "socket",
        "threading",
        "shutil",
        "tempfile",
        "logging",
        "tomllib",
        "signal",
        "ctypes",
        "struct",
        "types",
        "kedge.errors",
    ),
}
MODULES = 53  # of kedge; two of them hold the names of ranks, which launches share; all but four come from one file
CALLS = 195  # that name a file of kedge's, of the image or of the container; those of the name service are the host's


@pytest.fixture(scope="module")
def bytecode(runner: Runner) -> dict[str, str]:
    """An installed kedge has its bytecode and its archive; those of a checkout may not be writable for the user."""
    folder = runner.folder / "bytecode"
    environment = {**runner.variables(), "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(PACKAGE)], env=environment, check=True)
    subprocess.run([*find_script(), "--version"], env=environment, check=True, capture_output=True)
    open_way(folder)
    return environment


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
    done = subprocess.run(
        as_user(runner, argv[0], "-X", "importtime", *argv[1:]),
        env=runner.variables(),
        capture_output=True,
        text=True,
        check=True,
        cwd=runner.home,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_start_loads_no_heavy_module(runner: Runner, image: str) -> None:
    nothing = list_modules(runner, sys.executable, "-c", "pass")
    loaded = list_modules(runner, *find_script(), "exec", image, "true") - nothing
    own = {name for name in loaded if name.startswith("kedge")} - {
        "kedge.late_functions",
        "kedge.lean_code",
        "kedge.record_modules",
        "kedge.start_modules",
    }  # for who writes the archive
    assert not loaded & HEAVY
    assert loaded - own <= ALLOWED
    assert len(own) <= MODULES, sorted(own)


def test_start_touches_few_files(runner: Runner, image: str, bytecode: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = [require_program("strace"), "-f", "-qq", "-e", "trace=%file", "-o", str(trace)]
    argv = as_user(runner, *find_script(), "exec", image, "true")
    subprocess.run([*strace, *argv], env=bytecode, check=True, capture_output=True, cwd=runner.home)
    places = (str(PACKAGE), str(runner.folder), "/proc/", "/sys", "/dev")
    calls = [line for line in trace.read_text().splitlines() if any(f'"{place}' in line for place in places)]
    assert len(calls) <= CALLS, "\n".join(calls)
