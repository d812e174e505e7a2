# SPDX-License-Identifier: BSD-3-Clause
"""`kedge mpi`, and launches in every mode on one host, as an ordinary user with real images of Open MPI and MPICH."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kedge.errors import FileProblem, LaunchRefused
from tests.builders.containers import Runner, give_to, warm_runner
from tests.builders.elf_files import make_library
from tests.builders.mpi_images import make_mpi_image
from tests.requirements import require_program
from tests.wording import assert_says

runner = warm_runner
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words)
{
    int rank, size;
    double mine, sum = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = rank;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d sum %g\\n", rank, size, sum);
    return MPI_Finalize();
}
"""
THREE = ["rank 0 of 3 sum 3", "rank 1 of 3 sum 3", "rank 2 of 3 sum 3"]
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}


@pytest.fixture(scope="module")
def images(runner: Runner) -> dict[str, Path]:
    return {family: make_mpi_image(runner, family) for family in OTHER}


@pytest.fixture(scope="module")
def bare(runner: Runner) -> Path:
    """An image without MPI that has a program linked with each of the two."""
    image = runner.home / "bare"
    runner.read("pull", "--format", "sandbox", str(image), "host:sh,awk")  # awk brings libm
    source = runner.home / "ranks.c"
    source.write_text(PROGRAM)
    for family in OTHER:
        compiler = require_program(f"mpicc.{family}")
        subprocess.run([compiler, str(source), "-o", str(image / f"usr/bin/ranks-{family}")], check=True, timeout=60)
    return give_to(runner, image)


def ask(runner: Runner, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(runner.read("mpi", *words, "--json"))
    return answer


def launch(runner: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    return runner.run("launch", "-n", "3", *words, env={"TMPDIR": "/tmp"})


def test_show_of_this_host(runner: Runner) -> None:
    require_program("mpirun.mpich")
    host = ask(runner, "show")
    assert host["mpi"]["title"].startswith("Open MPI ")
    assert host["mpi"]["launcher"] == "/usr/bin/mpirun"
    assert "MPICH" in {mpi["family"] for mpi in host["others"]}
    assert "libmpi.so.40" in runner.read("mpi", "show")


@pytest.mark.parametrize(
    ("family", "title", "pmi"), [("openmpi", "Open MPI", ["pmix"]), ("mpich", "MPICH", ["pmi2", "pmi1"])]
)
def test_show_of_an_image(runner: Runner, images: dict[str, Path], family: str, title: str, pmi: list[str]) -> None:
    shown = ask(runner, "show", "--run", str(images[family]))
    (mpi,) = shown["mpis"]
    assert (mpi["family"], mpi["pmi"], shown["is_searched"]) == (title, pmi, True)
    assert mpi["version"] in shown["library_version"], "the files say what the library says of itself"


def test_check_knows_all_ways(runner: Runner, images: dict[str, Path]) -> None:
    found = ask(runner, "check", "--nodes", "1", str(images["openmpi"]))
    levels = {verdict["mode"]: verdict["level"] for verdict in found["verdicts"]}
    assert (levels["hybrid"], levels["bind"], levels["contained"]) == ("works", "works", "works")
    text = runner.read("mpi", "check", str(images["openmpi"]))
    assert_says(text, "compat/hosts-mpirun-open-mpi")


def test_check_of_one_way_has_an_exit_code(runner: Runner, images: dict[str, Path], bare: Path) -> None:
    refused = runner.run("mpi", "check", "--mode", "contained", "--nodes", "2", str(images["mpich"]))
    assert refused.returncode == LaunchRefused.exit_code
    assert_says(refused.stdout, "compat/starts-ranks-own-node-only", 2)
    assert runner.run("mpi", "check", "--mode", "contained", str(images["mpich"])).returncode == 0
    assert runner.run("mpi", "check", "--mode", "hybrid", str(bare)).returncode == LaunchRefused.exit_code


def test_check_of_a_program(runner: Runner, bare: Path) -> None:
    found = ask(runner, "check", "--program", "ranks-mpich", str(bare))
    assert (found["image"]["needed"], found["image"]["mpis"]) == ("libmpich.so.12", [])
    levels = {verdict["mode"]: verdict["level"] for verdict in found["verdicts"]}
    assert (levels["hybrid"], levels["bind"]) == ("fails", "works")


def test_bad_input_is_refused_in_words(runner: Runner) -> None:
    absent = runner.run("mpi", "show", "./absent.sif")
    assert (absent.returncode, "Traceback" in absent.stderr) == (FileProblem.exit_code, False)
    broken = runner.home / "broken"
    (broken / "usr/lib64").mkdir(parents=True, exist_ok=True)
    (broken / "usr/lib64/libmpi.so.40").write_bytes(make_library("libmpi.so.40")[:100])
    assert "no MPI library" in runner.read("mpi", "show", str(broken))


@pytest.mark.parametrize("family", list(OTHER))
@pytest.mark.parametrize("mode", ["hybrid", "contained"])
def test_launch_with_the_images_mpi(runner, images, bare, family, mode):
    program = f"{bare}/usr/bin/ranks-{family}:/usr/bin/ranks"
    done = launch(runner, "--mpi-mode", mode, "--bind", program, str(images[family]), "ranks")
    assert (done.returncode, sorted(done.stdout.split("\n")[:3])) == (0, THREE), done.stderr


@pytest.mark.parametrize("family", list(OTHER))
def test_launch_with_the_hosts_mpi(runner: Runner, bare: Path, family: str) -> None:
    done = launch(runner, "--mpi-mode", "bind", str(bare), f"ranks-{family}")
    assert (done.returncode, sorted(done.stdout.split())) == (0, sorted(" ".join(THREE).split())), done.stderr


def test_launch_with_the_hosts_mpi_needs_a_c_library_that_is_new_enough(runner: Runner, bare: Path) -> None:
    old = runner.home / "old"
    subprocess.run(["cp", "-a", str(bare), str(old)], check=True, timeout=60)
    (libc,) = old.glob("usr/lib/*/libc.so.6")
    libc.unlink()
    libc.write_bytes(b"GNU C Library (Debian GLIBC 2.28-10) stable release version 2.28.\n")
    done = launch(runner, "--mpi-mode", "bind", str(give_to(runner, old)), "ranks-openmpi")
    assert done.returncode == LaunchRefused.exit_code
    needed = re.search(r"needs glibc (2\.[0-9]+), and the image has 2\.28", done.stderr)
    assert needed, done.stderr
    assert f"GLIBC_{needed[1]} not found" in done.stderr


def test_launch_of_a_wrong_pair_is_refused(runner: Runner, images: dict[str, Path], bare: Path) -> None:
    program = f"{bare}/usr/bin/ranks-mpich:/usr/bin/ranks"
    done = launch(runner, "--launcher", "mpirun", "--bind", program, str(images["mpich"]), "ranks")
    assert (done.returncode, done.stdout) == (LaunchRefused.exit_code, "")
    assert_says(done.stderr, "compat/each-rank-rank")
