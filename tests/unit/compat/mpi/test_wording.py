# SPDX-License-Identifier: BSD-3-Clause
"""Tests of kedge.compat.mpi.wording."""

from __future__ import annotations

from kedge.cluster.mpi import MpiFacts, MpiImage
from kedge.compat.mpi.wording import explain_doubt

OPEN = MpiFacts("Open MPI", "4.1.4")
MPICH = MpiFacts("MPICH", "4.0.2")


def test_two_mpis_and_a_script_leave_a_doubt() -> None:
    both = MpiImage("app.sif", (OPEN, MPICH), is_searched=True)
    said = explain_doubt(both, "sh")
    assert said.startswith("the image has Open MPI 4.1.4 and MPICH 4.0.2, and 'sh' does not say which one")
    assert "With MPICH 4.0.2 each rank would be rank 0 of 1" in said


def test_a_program_that_says_which_mpi_it_uses_leaves_none() -> None:
    assert explain_doubt(MpiImage("app.sif", (OPEN, MPICH), needed="libmpi.so.40"), "ranks") == ""


def test_one_mpi_leaves_none() -> None:
    assert explain_doubt(MpiImage("app.sif", (OPEN,)), "sh") == ""
    assert explain_doubt(MpiImage("app.sif", (MPICH, MpiFacts("Intel MPI", "2021.9"))), "sh") == ""
    assert explain_doubt(MpiImage("app.sif"), "sh") == ""
