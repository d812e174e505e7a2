# SPDX-License-Identifier: BSD-3-Clause
"""Images with a real MPI, packed from this host's, and command lines that start ranks of them under its launchers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.builders.containers import Runner
from tests.builders.once import make_once
from tests.requirements import require_program


def find_programs(family: str) -> tuple[str, ...]:
    """Programs of this host that bring the library, its launcher and what they load while they run."""
    if family == "mpich":
        return ("mpirun.mpich", "hydra_pmi_proxy", "mpivars")
    daemons = ("orted",) if installed_title(family) < "Open MPI 5" else ("prterun", "prted")
    return ("mpirun.openmpi", *daemons, "ompi_info")


LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"),
    "mpich": ("mpirun.mpich",),
}
# What `kedge rank` does, in small: hold the probe open, and become a container that starts it.
RANK = """
import os, sys
from kedge.launch.probe.words import find_probe, probe_words
from kedge.system.memory_program import hold_program
image, command, *more = sys.argv[1:]
task = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "-1"
words = probe_words(hold_program(find_probe(os.uname().machine)), command, task=int(task))
os.execv(sys.executable, [sys.executable, "-m", "kedge", "exec", image, *words, *more])
"""


def make_mpi_image(runner: Runner, family: str) -> Path:
    """A SIF file of the runner's user with Debian's Open MPI (`openmpi`) or MPICH (`mpich`), packed once in a run."""
    path = runner.home / f"{family}.sif"

    def pack(made: Path) -> None:
        programs = [require_program(name) for name in find_programs(family)]
        runner.read("pull", "--format", "sif", str(path), "host:" + ",".join([*programs, "sh"]))
        shutil.copy(path, made)

    made = make_once(f"{family}.sif", pack)
    if not path.exists():
        shutil.copy(made, path)
        os.chown(path, runner.uid, runner.uid)
    return path


def installed_title(family: str) -> str:
    """Name and version of this host's MPI, as its launcher says: `Open MPI 4.1.4`."""
    done = subprocess.run(
        [require_program(LAUNCHERS[family][0]), "--version"], capture_output=True, text=True, check=True
    )
    version = re.search(r"(?:\(Open(?: MPI|RTE)\)|Version:)\s+(\d[\w.]*)", done.stdout)
    assert version, done.stdout
    return {"openmpi": "Open MPI ", "mpich": "MPICH "}[family] + version[1]


def launch_words(family: str, ranks: int) -> list[str]:
    """The words of a launcher of this host before a rank's own."""
    program, *options = LAUNCHERS[family]
    return [require_program(program), *options, "-np", str(ranks)]


def probe_rank(image: Path, command: str, *more: str) -> list[str]:
    """The command line of one rank that runs the probe in a container."""
    return [sys.executable, "-c", RANK, str(image), command, *more]
