# SPDX-License-Identifier: BSD-3-Clause
"""MPI of a host and of images: launcher, files, srun's answer; read anew where anything is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.mpi import MPICH, OPEN_MPI, MpiFacts, MpiImage
from kedge.compat.known_mpis import describe_file, recall_host, recall_image
from kedge.compat.mpi_of_host import find_pmi_library, list_mpi_types, read_host_mpi
from kedge.system.views import TableView
from tests.builders.elf_files import make_library

OPEN = make_library("libmpi.so.40", ["libopen-pal.so.40"])


def write_program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_launcher_and_files_are_joined(tmp_path: Path) -> None:
    host = read_host_mpi({"PATH": str(tmp_path)}, view=TableView({"/usr/lib64/libmpi.so.40.30.4": OPEN}), ask=False)
    assert host.mpi is not None
    assert (host.mpi.version, host.mpi.launcher) == ("4.1", "")
    assert read_host_mpi({"PATH": str(tmp_path)}, view=TableView({}), ask=False).mpi is None
    write_program(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    view = TableView(
        {
            "/usr/lib64/libmpi.so.40.30.4": OPEN,
            "/usr/lib64/openmpi/mca_pmix_pmix3x.so": b"",
            "/opt/mpich/lib/libmpi.so.12": make_library("libmpi.so.12", text=b"MPICH Version:\t4.1\0"),
            "/opt/mpich/bin/mpiexec": b"",
        },
        ("/opt/mpich/bin/mpiexec",),
    )
    host = read_host_mpi({"PATH": f"{tmp_path}:/usr/bin:/bin"}, view=view, ask=False)
    assert host.mpi is not None
    assert (host.mpi.family, host.mpi.version, host.mpi.pmi) == (OPEN_MPI, "4.1.4", ("pmix",))
    assert host.mpi.launcher == f"{tmp_path}/mpirun"
    assert [(mpi.family, mpi.launcher) for mpi in host.others] == [(MPICH, "/opt/mpich/bin/mpiexec")]


def test_pmi_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = TableView({"/usr/lib64/libpmi2.so.0": "-> libpmi2.so.0.0.0", "/usr/lib64/libpmi2.so.0.0.0": b""})
    assert find_pmi_library(view) == "/usr/lib64/libpmi2.so.0.0.0"
    assert find_pmi_library(TableView({})) == ""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_program(tmp_path, "srun", "printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n\\tpmix\\n' >&2")
    assert list_mpi_types({"PATH": "/usr/bin:/bin"}) == ("none", "pmi2", "pmix")
    write_program(tmp_path, "srun", "echo 'srun: fatal: no configuration' >&2; exit 1")
    assert list_mpi_types({}) is None


FACTS = MpiFacts(OPEN_MPI, "4.1.4", pmi=("pmix",), fabrics=("ucx",), variables=(("OPAL_PREFIX", "/opt/x"),))
IMAGE = MpiImage("app.sif", (FACTS, MpiFacts(MPICH, "4.0.2")), "2.36", is_searched=True, notes=("two",))


class Reader:
    """Counts how often an image is read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> MpiImage:
        self.count += 1
        return IMAGE


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KEDGE_CACHEDIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def test_images_and_hosts_are_read_once_where_that_can_be_believed(environ: dict[str, str]) -> None:
    read = Reader()
    assert [recall_image("/app.sif", "state", environ, read) for _ in range(3)] == [IMAGE] * 3
    assert read.count == 1
    recall_image("/app.sif", "another state", environ, read)
    recall_image("/other.sif", "state", environ, read)
    assert read.count == 3
    read = Reader()
    recall_image("/app", "", environ, read)
    recall_image("/app", "", environ, read)
    assert read.count == 2
    read = Reader()
    for _ in range(2):
        recall_image("/app.sif", "state", environ | {"KEDGE_SHARED_CACHE": "true"}, read)
    assert read.count == 2
    assert recall_host("node1", "libraries", environ, lambda: (FACTS,)) == (FACTS,)
    assert recall_host("node1", "libraries", environ, tuple) == (FACTS,)
    assert recall_host("node2", "libraries", environ, tuple) == ()


def test_a_file_is_another_one_when_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "libmpi.so"
    assert describe_file(str(path)) == describe_file("nul\0") == ""
    path.write_text("1")
    before = describe_file(str(path))
    path.write_text("22")
    assert before
    assert describe_file(str(path)) != before
