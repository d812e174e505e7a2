# SPDX-License-Identifier: BSD-3-Clause
"""PMI: what an MPI knows, what srun offers, and what a process was given."""

from __future__ import annotations

from kedge.cluster.mpi import CRAY, INTEL, MPICH, OPEN_MPI, PMI1, PMI2, PMIX, UNKNOWN_FAMILY, MpiFacts
from kedge.compat.mpi.pmi import choose_mpi_type, find_served, is_served, list_pmi
from tests.builders.rows import each_row


@each_row(("mpi", "kinds"), [
    (MpiFacts(OPEN_MPI, "4.1.4"), (PMIX,)), (MpiFacts(OPEN_MPI, ""), (PMIX,)), (MpiFacts(OPEN_MPI, "1.10.7"), None),
    (MpiFacts(OPEN_MPI, "4.1.4", pmi=()), ()), (MpiFacts(MPICH, "3.4"), (PMI2, PMI1)),
    (MpiFacts(INTEL, "2021.9"), (PMI2, PMI1)), (MpiFacts(UNKNOWN_FAMILY), None),
])  # fmt: skip
def test_kinds_by_files_or_by_family(mpi: MpiFacts, kinds: tuple[str, ...] | None) -> None:
    assert list_pmi(mpi) == kinds


def test_word_for_srun() -> None:
    everything = ("none", "cray_shasta", "pmi2", "pmix", "pmix_v4")
    assert choose_mpi_type(MpiFacts(OPEN_MPI, "4.1.4"), everything) == "pmix"
    assert choose_mpi_type(MpiFacts(OPEN_MPI, "4.1.4"), ("pmix_v3", "pmix_v4")) == "pmix_v4"
    assert choose_mpi_type(MpiFacts(MPICH, "4.0"), everything) == "pmi2"
    assert choose_mpi_type(MpiFacts(CRAY, "8.1"), everything) == "cray_shasta"
    assert choose_mpi_type(MpiFacts(MPICH, "4.0"), ("pmix",)) == ""


def test_what_a_process_was_given() -> None:
    assert find_served({}) == ()
    assert find_served({"PMIX_NAMESPACE": "slurm.pmix.5.0"}) == (PMIX,)
    assert find_served({"PMI_FD": "9", "PMI_RANK": "0"}) == (PMI2, PMI1)
    assert is_served((PMI2, PMI1), {"PMI_PORT": "h:1"})
    assert not is_served((PMI2, PMI1), {"PMIX_NAMESPACE": "x"})
