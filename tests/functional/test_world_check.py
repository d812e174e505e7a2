# SPDX-License-Identifier: BSD-3-Clause
"""The check of all ranks before the program, as an ordinary user: an MPI that does not end, a kedge that is noexec."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace

from tests.builders.containers import Runner, give_to
from tests.builders.mpi_images import make_mpi_image
from tests.requirements import REPOSITORY, require_program, require_root
from tests.wording import assert_says

# An MPI as far as the check calls it: ranks by Hydra's variables, and no end.
ENDLESS = """
#include <stdlib.h>
#include <unistd.h>
static int number(const char *name) { return atoi(getenv(name)); }
int MPI_Init(int *count, char ***words) { return 0; }
int MPI_Finalize(void) { for (;;) pause(); }
int MPI_Comm_rank(int world, int *rank) { *rank = number("PMI_RANK"); return 0; }
int MPI_Comm_size(int world, int *size) { *size = number("PMI_SIZE"); return 0; }
int MPI_Barrier(int world) { return 0; }
int MPI_Reduce(const void *from, void *into, int count, int kind, int op, int root, int world) { return 0; }
int MPI_Allreduce(const void *from, double *into, int count, int kind, int op, int world)
{ *into = number("PMI_SIZE"); return 0; }
int MPI_Allgather(const void *from, int count, int kind, void *into, int more, int other, int world) { return 0; }
"""


def test_world_check_ends_an_mpi_that_does_not(runner: Runner) -> None:
    image, source = runner.home / "endless", runner.home / "endless.c"
    runner.read("pull", "--format", "sandbox", str(image), "host:sh")
    source.write_text(ENDLESS)
    library = next(image.glob("usr/lib/*/libc.so.6")).with_name("libmpich.so.12")
    words = [require_program("gcc"), "-shared", "-fPIC", "-Wl,-soname,libmpich.so.12", str(source), "-o", str(library)]
    subprocess.run(words, check=True, timeout=60)
    require_program("mpiexec.hydra")
    done = runner.run(
        "launch", "--mpi", "--launcher", "mpiexec", "-n", "2", str(give_to(runner, image)), "sh", "-c", "echo ran"
    )
    assert (done.returncode, done.stdout) == (0, "ran\nran\n"), done.stderr
    assert_says(done.stderr, "launch/all-ranks-found-each-other")


def test_world_check_where_kedge_is_mounted_noexec(runner: Runner) -> None:
    """The directory of kedge as clusters may have it: programs in it do not start."""
    require_root()
    image = make_mpi_image(runner, "mpich")
    place = runner.home / "noexec"
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "noexec,nosuid,mode=755", "tmpfs", str(place)], check=True, timeout=20
    )
    try:
        shutil.copytree(REPOSITORY / "src/kedge", place / "kedge")
        elsewhere = replace(runner, program=(sys.executable, str(place / "kedge/__main__.py")))
        done = elsewhere.run("launch", "-v", "-n", "2", str(image), "sh", "-c", "echo ran")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "ran\nran\n"), done.stderr
    assert_says(done.stderr, "launch/world-check-ranks-found-each", 2)
