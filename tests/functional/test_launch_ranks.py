# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of ranks on one host: π with the same digits on 1, 2 and 8, and 64 ranks that read each other's memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.mpi_images import make_mpi_image
from tests.requirements import REPOSITORY, require_program

runner = warm_runner
PROGRAMS = REPOSITORY / "tests/programs"
MANY = 64


def compile_program(runner: Runner, compiler: str, name: str) -> Path:
    program = runner.home / name
    words = [require_program(compiler), "-O1", "-o", str(program), str(PROGRAMS / f"{name}.c")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("family", ["openmpi", "mpich"])
def test_pi_has_the_same_digits_on_any_number_of_ranks(runner: Runner, family: str) -> None:
    image, program = make_mpi_image(runner, family), compile_program(runner, f"mpicc.{family}", "pi_by_mpi")
    said = [runner.read("launch", "--tasks", str(size), str(image), str(program)) for size in (1, 2, 8)]
    assert [line.partition(": ")[0] for line in said] == [f"{size} ranks" for size in (1, 2, 8)]
    assert len({line.partition(": ")[2] for line in said}) == 1
    assert abs(float(said[0].partition(": ")[2]) - 3.141592653589793) < 1e-12


def test_64_ranks_are_in_one_container_and_read_each_others_memory(runner: Runner) -> None:
    """That is how MPI copies within a node (CMA): the kernel allows it within one user namespace only."""
    program = compile_program(runner, "cc", "read_memory_of_ranks")
    image, folder = runner.home / "reader.sif", runner.home / "ranks"
    folder.mkdir()
    give_to(runner, folder)
    runner.read("pull", str(image), f"host:{program}")
    words = ("--tasks", str(MANY), "--ranks", str(image), str(program), str(folder))
    rows = [line.split(maxsplit=3) for line in runner.read("launch", *words).splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(MANY))
    assert len({(row[1], row[2]) for row in rows}) == 1
    assert {row[3] for row in rows} == {f"word of {rank}" for rank in range(MANY)}
    shutil.rmtree(folder)
