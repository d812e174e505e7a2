# SPDX-License-Identifier: BSD-3-Clause
"""Which MPI a machine has, by files, its launcher, variables and modules; and the GPUs that a program on it may see."""

from __future__ import annotations

import os
import time

import pytest

from kedge.cluster.host_mpi import find_mpi, parse_answer
from kedge.cluster.mpi import CRAY, INTEL, MPICH, OPEN_MPI
from kedge.cluster.this_host import read_this_host
from kedge.system.host.gpu_devices import count_visible, list_gpus
from tests.builders.rows import each_row, with_rows


def put_program(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@with_rows(
    ("mpirun (Open MPI) 4.1.1rc1\n\nReport bugs to", (OPEN_MPI, "4.1.1rc1")),
    ("mpiexec (OpenRTE) 4.1.4\n", (OPEN_MPI, "4.1.4")),
    ("mpirun (Open MPI) 5.0.3\n", (OPEN_MPI, "5.0.3")),
    ("HYDRA build details:\n    Version:                                 4.0.2\n", (MPICH, "4.0.2")),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\n", (INTEL, "2021.9")),
    ("usage: mpirun [options]", None),
)
def test_mpi_answers_of_launchers(answer: str, expected: tuple[str, str] | None) -> None:
    assert parse_answer(answer) == expected


def test_mpi_launcher_is_not_run_where_files_tell(tmp_path) -> None:
    mark = tmp_path / "was-run"
    put_program(tmp_path / "ompi/bin/mpirun", f"touch {mark}; exit 1")
    (tmp_path / "ompi/share/openmpi").mkdir(parents=True)
    (tmp_path / "ompi/share/openmpi/mpicc-wrapper-data.txt").write_text("project=Open MPI\nversion=4.1.4\nlanguage=C\n")
    found = find_mpi({"PATH": str(tmp_path / "ompi/bin")})
    assert (found.title, found.launcher) == ("Open MPI 4.1.4", str(tmp_path / "ompi/bin/mpirun"))
    assert not mark.exists()


@each_row(
    ("header", "title"),
    [
        ('#define MPICH_VERSION "4.0.2"\n', "MPICH 4.0.2"),
        ('#define MPICH_VERSION "3.2.1"\n#define MVAPICH2_VERSION "2.3.7"\n', "MVAPICH 2.3.7"),
        ('#define MPICH_VERSION "3.4a2"\n#define I_MPI_VERSION "2021.9.0"\n', "Intel MPI 2021.9.0"),
        (
            "#define OMPI_MAJOR_VERSION 5\n#define OMPI_MINOR_VERSION 0\n#define OMPI_RELEASE_VERSION 3\n",
            "Open MPI 5.0.3",
        ),
    ],
)
def test_mpi_header_beside_the_launcher_tells(tmp_path, header: str, title: str) -> None:
    put_program(tmp_path / "bin/mpiexec", "exit 1")
    (tmp_path / "include").mkdir(exist_ok=True)
    (tmp_path / "include/mpi.h").write_text(header)
    found = find_mpi({"PATH": str(tmp_path / "bin")})
    assert found.title == title


def test_mpi_launcher_is_asked_where_no_file_tells(tmp_path) -> None:
    put_program(tmp_path / "bin/mpirun", "echo 'Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 1'")
    found = find_mpi({"PATH": str(tmp_path / "bin")}, deadline=10)
    assert (found.title, found.source) == ("Intel MPI 2021.9", "'mpirun --version'")


def test_mpi_launcher_that_hangs_costs_its_deadline(tmp_path) -> None:
    put_program(tmp_path / "bin/mpirun", "exec sleep 60")
    began = time.monotonic()
    found = find_mpi({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, deadline=0.3)
    assert time.monotonic() - began < 30
    assert (found.family, found.version) == ("MPI", "")


@each_row(
    ("modules", "title"),
    [
        ("gcc/12.2:OpenMPI/4.1.4-GCC-12.2.0", "Open MPI 4.1.4"),
        ("impi/2021.6.0-intel-compilers-2022.1.0", "Intel MPI 2021.6.0"),
        *(("mvapich2-gdr/2.3.7", "MVAPICH 2.3.7"), ("cray-mpich/8.1.28", "Cray MPICH 8.1.28"), ("python/3.11", None)),
    ],
)
def test_mpi_of_modules_without_a_launcher(tmp_path, modules: str, title: str | None) -> None:
    found = find_mpi({"PATH": str(tmp_path), "LOADEDMODULES": modules})
    assert (found.title if found else None) == title


def test_mpi_of_cray_is_told_by_its_variable_and_none_is_none(tmp_path) -> None:
    found = find_mpi({"PATH": str(tmp_path), "CRAY_MPICH_VERSION": "8.1.28"})
    assert (found.family, found.version) == (CRAY, "8.1.28")
    assert find_mpi({"PATH": str(tmp_path)}) is None


@pytest.fixture
def devices(tmp_path) -> str:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return str(tmp_path)


def test_this_host_and_its_gpus(devices: str, tmp_path) -> None:
    assert list_gpus(devices) == ("0", "1", "10")
    assert list_gpus(str(tmp_path / "nowhere")) == ()
    assert count_visible({}, devices) == 3
    host = read_this_host({"CUDA_VISIBLE_DEVICES": "0,1"})
    assert (host.name, host.gpus) == (os.uname().nodename, 2)
    assert host.cpus >= 1


@each_row(
    ("chosen", "count"),
    [("0,1", 2), ("GPU-8a3f,MIG-12", 2), ("", 0), ("NoDevFiles", 0), ("-1", 0), ("0,-1,1", 1), ("void", 0), ("3", 1)],
)
def test_gpus_that_a_program_sees(devices: str, chosen: str, count: int) -> None:
    assert count_visible({"CUDA_VISIBLE_DEVICES": chosen}, devices) == count
