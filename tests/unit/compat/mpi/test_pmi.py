# SPDX-License-Identifier: BSD-3-Clause
"""PMI: what an MPI knows, what srun offers, what a process was given; and the MPI that a config names."""

from __future__ import annotations

from kedge.cluster.mpi import CRAY, INTEL, MPICH, OPEN_MPI, PMI1, PMI2, PMIX, UNKNOWN_FAMILY, MpiFacts, MpiImage
from kedge.compat.mpi.pmi import choose_mpi_type, find_served, is_served, list_pmi
from kedge.compat.mpi.stated import parse_title, read_stated_mpi
from kedge.compat.mpi.wording import explain_doubt
from kedge.compat.traits import Fact, ImageTraits
from tests.builders.rows import each_row
from tests.wording import assert_begins, assert_says


@each_row(("mpi", "kinds"), [
    (MpiFacts(OPEN_MPI, "4.1.4"), (PMIX,)), (MpiFacts(OPEN_MPI, ""), (PMIX,)), (MpiFacts(OPEN_MPI, "1.10.7"), None),
    (MpiFacts(OPEN_MPI, "4.1.4", pmi=()), ()), (MpiFacts(MPICH, "3.4"), (PMI2, PMI1)),
    (MpiFacts(INTEL, "2021.9"), (PMI2, PMI1)), (MpiFacts(UNKNOWN_FAMILY), None),
])  # fmt: skip
def test_kinds_by_files_or_by_family(mpi: MpiFacts, kinds: tuple[str, ...] | None) -> None:
    assert list_pmi(mpi) == kinds


def test_words_of_pmi_and_config() -> None:
    everything = ("none", "cray_shasta", "pmi2", "pmix", "pmix_v4")
    assert choose_mpi_type(MpiFacts(OPEN_MPI, "4.1.4"), everything) == "pmix"
    assert choose_mpi_type(MpiFacts(OPEN_MPI, "4.1.4"), ("pmix_v3", "pmix_v4")) == "pmix_v4"
    assert choose_mpi_type(MpiFacts(MPICH, "4.0"), everything) == "pmi2"
    assert choose_mpi_type(MpiFacts(CRAY, "8.1"), everything) == "cray_shasta"
    assert choose_mpi_type(MpiFacts(MPICH, "4.0"), ("pmix",)) == ""
    assert find_served({}) == ()
    assert find_served({"PMIX_NAMESPACE": "slurm.pmix.5.0"}) == (PMIX,)
    assert find_served({"PMI_FD": "9", "PMI_RANK": "0"}) == (PMI2, PMI1)
    assert is_served((PMI2, PMI1), {"PMI_PORT": "h:1"})
    assert not is_served((PMI2, PMI1), {"PMIX_NAMESPACE": "x"})
    facts = {"mpi": Fact("Open MPI 4.1.7", "x"), "hpcx": Fact("2.20", "x"), "ucx": Fact("1.19", "x")}
    mpi = read_stated_mpi(ImageTraits("image", **facts))
    assert (mpi.title, mpi.build, mpi.fabrics, mpi.pmi) == ("Open MPI 4.1.7", "HPC-X 2.20", ("ucx",), None)
    assert read_stated_mpi(ImageTraits("image")) is None


@each_row(("title", "family", "version"), [
    ("Intel(R) MPI Library 2021.9", "Intel MPI", "2021.9"), ("MVAPICH2 2.3.7", "MVAPICH", "2.3.7"),
    ("Open MPI v5.0.3", "Open MPI", "5.0.3"), ("Open MPI 4.1.5rc2", "Open MPI", "4.1.5rc2"),
    ("HPC-X 2.16", "Open MPI", ""), ("something", "MPI", ""),
])  # fmt: skip
def test_names_and_versions(title: str, family: str, version: str) -> None:
    mpi = parse_title(title)
    assert (mpi.family, mpi.version) == (family, version)


OPEN = MpiFacts("Open MPI", "4.1.4")
MPICH_4 = MpiFacts("MPICH", "4.0.2")


def test_doubts_of_two_mpis() -> None:
    both = MpiImage("app.sif", (OPEN, MPICH_4), is_searched=True)
    said = explain_doubt(both, "sh")
    assert_begins(said, "compat/image-does-not-say-one", "Open MPI 4.1.4", "MPICH 4.0.2", "sh")
    assert_says(said, "compat/each-rank-rank-2", "MPICH 4.0.2")
    assert explain_doubt(MpiImage("app.sif", (OPEN, MPICH_4), needed="libmpi.so.40"), "ranks") == ""
    assert explain_doubt(MpiImage("app.sif", (OPEN,)), "sh") == ""
    assert explain_doubt(MpiImage("app.sif", (MPICH_4, MpiFacts("Intel MPI", "2021.9"))), "sh") == ""
    assert explain_doubt(MpiImage("app.sif"), "sh") == ""
