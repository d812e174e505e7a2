# SPDX-License-Identifier: BSD-3-Clause
"""Why the check of the ranks failed: a rank's own refusal, or what MPI said; never a note on the way."""

from __future__ import annotations

from kedge.launch import check_world
from kedge.launch.follow_output import RankFailure

NOTE = "kedge: waiting for process 4711, which is unpacking the image: app.sif"


def explain(*lines: str) -> str:
    heard = check_world._Heard()
    for line in lines:
        heard.write(True, f"{line}\n")
    error = check_world._explain_failure(RankFailure(0, 137, "gpu01"), "", heard)
    return f"{error} {error.hint}"


def test_check_that_failed_in_mpi_after_a_note() -> None:
    assert explain(NOTE, "Fatal error in internal_Init").startswith(
        "the world check failed: rank 0 on gpu01 ended with status 137"
    )


def test_check_that_a_rank_refused_after_a_note() -> None:
    said = explain(NOTE, "kedge: MPICH needs pmi2", "hint: give --mpi-type pmi2")
    assert said.startswith("MPICH needs pmi2")
    assert said.endswith("give --mpi-type pmi2")
