# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI this machine starts ranks with: by the launcher in PATH and the files beside it, else by asking it.

Files first: a launcher on a busy network file system takes seconds to answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kedge.cluster.launchers.known import list_launchers
from kedge.cluster.mpi import CRAY, INTEL, MPICH, MVAPICH, OPEN_MPI, UNKNOWN_FAMILY, MpiFacts
from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.process import run_program
from kedge.system.programs import find_program

_READ_LIMIT = 256 << 10
_SHARED_PREFIXES = ("/", "/usr", "/usr/local")  # several MPIs lie in these, and a file says nothing of the launcher
_VERSION = r"v?(\d+(?:\.\d+)+\w*)"

# What `--version` prints. Debian's mpiexec calls itself OpenRTE.
_ANSWERS = (
    (OPEN_MPI, re.compile(rf"\((?:Open MPI|OpenRTE|PRRTE)\) {_VERSION}")),
    (INTEL, re.compile(rf"Intel\(R\) MPI Library[^\n]*Version {_VERSION}")),
    (MVAPICH, re.compile(rf"MVAPICH\S*\s+Version\s*:?\s*{_VERSION}", re.IGNORECASE)),
    (MPICH, re.compile(rf"HYDRA build details:\s+Version:\s*{_VERSION}")),
)
# What mpi.h defines. MVAPICH and Intel MPI define MPICH_VERSION too, so MPICH comes last.
_DEFINITIONS = (
    (INTEL, re.compile(r'#define\s+I_MPI_VERSION\s+"([^"\s]+)')),
    (MVAPICH, re.compile(r'#define\s+MVAPICH2?_VERSION\s+"([^"\s]+)')),
    (CRAY, re.compile(r'#define\s+CRAY_MPICH_VERSION\s+"?([^"\s]+)')),
    (MPICH, re.compile(r'#define\s+MPICH_VERSION\s+"([^"\s]+)')),
)
_MODULES = (
    (CRAY, re.compile(r"cray-mpich(?:-abi)?/(\d[\w.]*)")),
    (INTEL, re.compile(r"(?:impi|intel-?mpi|intel-oneapi-mpi)/(\d[\w.]*)")),
    (MVAPICH, re.compile(r"mvapich2?(?:-\w+)?/(\d[\w.]*)")),
    (OPEN_MPI, re.compile(r"(?:openmpi|ompi)/(\d[\w.]*)")),
    (MPICH, re.compile(r"mpich/(\d[\w.]*)")),
)


def find_mpi(environ: Mapping[str, str], *, deadline: float = 1.0) -> MpiFacts | None:
    """The MPI that a user of this environment gets; None where there is none. `deadline` is for asking a launcher."""
    if environ.get("CRAY_MPICH_VERSION"):
        return MpiFacts(CRAY, environ["CRAY_MPICH_VERSION"], source="the variable CRAY_MPICH_VERSION")
    path = environ.get("PATH", os.defpath)
    launcher = next((program for name in list_launchers("library") if (program := find_program(name, path))), None)
    if launcher is None:
        return _read_modules(environ)
    return (
        _read_files(Path(launcher))
        or _ask_launcher(launcher, environ, deadline)
        or MpiFacts(UNKNOWN_FAMILY, launcher=launcher)
    )


def parse_answer(text: str) -> tuple[str, str] | None:
    """Family and version of what a launcher prints for --version."""
    matches = ((family, pattern.search(text)) for family, pattern in _ANSWERS)
    return next(((family, match[1]) for family, match in matches if match), None)


def _ask_launcher(launcher: str, environ: Mapping[str, str], deadline: float) -> MpiFacts | None:
    try:
        done = run_program([launcher, "--version"], environment=environ, timeout=deadline, check=False)
    except (ProgramFailed, ProgramMissing):
        return None
    version = parse_answer((done.output[:_READ_LIMIT] + b"\n" + done.errors[:_READ_LIMIT]).decode(errors="replace"))
    return MpiFacts(*version, launcher=launcher, source=f"'{Path(launcher).name} --version'") if version else None


def _read_files(launcher: Path) -> MpiFacts | None:
    """By what lies beside the launcher, where it has a directory of its own or its name says whose it is."""
    try:
        real = launcher.resolve()
    except (OSError, RuntimeError):
        return None
    prefix = real.parent.parent
    is_open_mpi = real.name in ("orterun", "prterun", "prun") or real.name.endswith(".openmpi")
    if str(prefix) in _SHARED_PREFIXES and not is_open_mpi:
        return None
    wrapper = prefix / "share/openmpi/mpicc-wrapper-data.txt"
    match = re.search(r"^version=(\S+)", _read_text(wrapper), re.MULTILINE)
    if match:
        return MpiFacts(OPEN_MPI, match[1].removeprefix("v"), launcher=str(launcher), source=str(wrapper))
    if str(prefix) in _SHARED_PREFIXES:
        return None
    for header in (prefix / "include/mpi.h", prefix / "include/openmpi/mpi.h"):
        text = _read_text(header)
        for family, version in read_definitions(text):
            return MpiFacts(family, version, launcher=str(launcher), source=str(header))
    return None


def read_definitions(text: str) -> Iterator[tuple[str, str]]:
    """Family and version of what an mpi.h defines, the surest first."""
    parts = [re.search(rf"#define\s+OMPI_{name}_VERSION\s+(\d+)", text) for name in ("MAJOR", "MINOR", "RELEASE")]
    if all(parts):
        yield OPEN_MPI, ".".join(match[1] for match in parts if match)
    for family, pattern in _DEFINITIONS:
        if match := pattern.search(text):
            yield family, match[1]


def _read_modules(environ: Mapping[str, str]) -> MpiFacts | None:
    """By the modules that are loaded, where none of them brings a launcher."""
    for module in environ.get("LOADEDMODULES", "").lower().split(":"):
        for family, pattern in _MODULES:
            if match := pattern.match(module):
                return MpiFacts(family, match[1], source=f"the module {module}")
    return None


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ_LIMIT).decode(errors="replace")
    except OSError:
        return ""
