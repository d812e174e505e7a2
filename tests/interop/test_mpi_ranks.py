# SPDX-License-Identifier: BSD-3-Clause
"""Real MPI: Open MPI and MPICH start ranks that are containers, which send each other megabytes within the node.

MPI copies within a node by reading the other's memory (CMA). The kernel allows that in one user namespace only.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.requirements import require_program

SOURCE = Path(__file__).with_name("mpi_ring.c")
RANKS = 4
BYTES = 8 << 20  # of each message, in mpi_ring.c
LINE = re.compile(r"rank (\d+) of (\d+) process \d+ (mnt:\S+) (user:\S+) ring (\w+) cma (.+)")


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest, runner: Runner) -> str:
    """The MPI's name; its program and its image are in the runner's directory."""
    name = str(request.param)
    program = runner.folder / f"ring-{name}"
    compiler = require_program(f"mpicc.{name}")
    subprocess.run([compiler, "-O1", "-o", str(program), str(SOURCE)], check=True, capture_output=True)
    image = runner.home / f"{name}.sif"
    assert runner.run("pull", str(image), f"host:{program}").returncode == 0
    return name


def launch(
    runner: Runner, mpi: str, *words: str, options: tuple[str, ...] = (), prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """`mpirun -n 4 kedge exec IMAGE ring`, as the user."""
    argv = runner.argv("exec", *words, str(runner.home / f"{mpi}.sif"), str(runner.folder / f"ring-{mpi}"))
    place = argv.index("--clear-groups") + 1 if "--clear-groups" in argv else 0
    crowded = ["--oversubscribe"] if mpi == "openmpi" else []  # more ranks than this machine may have processors
    mpirun = [require_program(f"mpirun.{mpi}"), *crowded, *options, "-n", str(RANKS)]
    variables = runner.variables({"TMPDIR": "/tmp"})  # sockets live there, whose names must be short
    # MPI waits for a rank that is lost until somebody ends it
    command = [*argv[:place], require_program("timeout"), "60", *prefix, *mpirun, *argv[place:]]
    return subprocess.run(command, env=variables, cwd=runner.home, capture_output=True, text=True, check=False)


def read_ranks(done: subprocess.CompletedProcess[str]) -> list[tuple[str, ...]]:
    """Mount and user namespace and what came of reading a neighbour's memory, of each rank."""
    found = sorted(match.groups() for match in LINE.finditer(done.stdout))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(int(each[0]), int(each[1])) for each in found] == [(rank, RANKS) for rank in range(RANKS)]
    assert {each[4] for each in found} == {"ok"}, "what arrived is what was sent"
    return [(each[2], each[3], each[5]) for each in found]


def host_namespaces() -> tuple[str, str]:
    return str(Path("/proc/self/ns/mnt").readlink()), str(Path("/proc/self/ns/user").readlink())


@pytest.mark.parametrize("words", [[], ["--root-from", "squashfuse"]], ids=" ".join)
def test_mpi_ranks_have_one_container_and_read_each_other(runner: Runner, mpi: str, words: list[str]) -> None:
    if "squashfuse" in words:
        require_program("squashfuse")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            pytest.skip("/dev/fuse cannot be used here")
    found = set(read_ranks(launch(runner, mpi, *words)))
    assert len(found) == 1
    mounts, users, count = found.pop()
    assert mounts != host_namespaces()[0]
    assert users != host_namespaces()[1]
    assert int(count) == BYTES
    end = time.monotonic() + 10  # the kernel tells a server of its last mount's end
    while list_processes(runner) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list_processes(runner), "nothing is left of the job"


def list_processes(runner: Runner) -> list[str]:
    """Command lines that name something of the runner's, such as a squashfuse that serves its image."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if bytes(runner.folder) in words and int(place.parent.name) != os.getpid():
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_mpi_ranks_apart_cannot_read_each_other(runner: Runner, mpi: str) -> None:
    """What is avoided: Open MPI must be told not to try, or waits for ever; MPICH's UCX gives up before its 1.15."""
    options = ("--mca", "btl_vader_single_copy_mechanism", "none") if mpi == "openmpi" else ()
    done = launch(runner, mpi, "--sharens=false", options=options)
    if mpi == "mpich" and "Shared memory error" in done.stdout + done.stderr:
        assert done.returncode != 0
        return
    found = read_ranks(done)
    assert len({users for _, users, _ in found}) == RANKS
    assert {count for _, _, count in found} == {"Operation not permitted"}


def test_mpi_itself_reads_the_memory_of_other_ranks(runner: Runner, mpi: str) -> None:
    """Not only our program can: the library does it for the messages."""
    trace = runner.home / f"trace-{mpi}"
    strace = (require_program("strace"), "-f", "-qq", "-e", "trace=process_vm_readv", "-o", str(trace))
    options = ("--mca", "btl_vader_single_copy_mechanism", "cma") if mpi == "openmpi" else ()
    read_ranks(launch(runner, mpi, options=options, prefix=strace))
    copied = [int(count) for count in re.findall(r"process_vm_readv.*= (\d+)$", trace.read_text(), re.MULTILINE)]
    own = RANKS * BYTES  # each rank reads once by itself; three messages of each are read by MPI
    assert sum(copied) > 2 * own if mpi == "openmpi" else sum(copied) >= own  # the way of UCX is the machine's choice
