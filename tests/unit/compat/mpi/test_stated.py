# SPDX-License-Identifier: BSD-3-Clause
"""The MPI that a config or the tables name."""

from __future__ import annotations

from kedge.compat.mpi.stated import parse_title, read_stated_mpi
from kedge.compat.traits import Fact, ImageTraits
from tests.builders.rows import each_row


@each_row(("title", "family", "version"), [
    ("Intel(R) MPI Library 2021.9", "Intel MPI", "2021.9"), ("MVAPICH2 2.3.7", "MVAPICH", "2.3.7"),
    ("Open MPI v5.0.3", "Open MPI", "5.0.3"), ("Open MPI 4.1.5rc2", "Open MPI", "4.1.5rc2"),
    ("HPC-X 2.16", "Open MPI", ""), ("something", "MPI", ""),
])  # fmt: skip
def test_names_and_versions(title: str, family: str, version: str) -> None:
    mpi = parse_title(title)
    assert (mpi.family, mpi.version) == (family, version)


def test_config_of_ngc() -> None:
    facts = {"mpi": Fact("Open MPI 4.1.7", "x"), "hpcx": Fact("2.20", "x"), "ucx": Fact("1.19", "x")}
    mpi = read_stated_mpi(ImageTraits("image", **facts))
    assert (mpi.title, mpi.build, mpi.fabrics, mpi.pmi) == ("Open MPI 4.1.7", "HPC-X 2.20", ("ucx",), None)
    assert read_stated_mpi(ImageTraits("image")) is None
