# SPDX-License-Identifier: BSD-3-Clause
"""Words that several verdicts share."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.mpi import PMI1, PMI2, PMIX, MpiImage

_TITLES = {PMIX: "PMIx", PMI2: "PMI-2", PMI1: "PMI-1"}
SINGLETONS_SAID = "each rank would be rank 0 of 1, and nothing would say so"


def explain_absence(image: MpiImage) -> str:
    """Say that no MPI is known in an image: because there is none, or because only its config was read."""
    if image.is_searched:
        return "the image has no MPI library"
    return "the image's config does not name an MPI, and its files were not read"


def name_kinds(kinds: Sequence[str]) -> str:
    """`PMIx`, `PMI-2 and PMI-1`."""
    shown = [_TITLES.get(kind, kind) for kind in kinds]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def explain_doubt(image: MpiImage, program: str) -> str:
    """Where the image has MPIs that are started differently, and the program does not say which it uses; else empty."""
    mpi = image.mpi
    other = next((each for each in image.mpis if mpi is not None and each.abi != mpi.abi), None)
    if mpi is None or other is None or image.needed:
        return ""
    return (
        f"the image has {mpi.title} and {other.title}, and '{program}' does not say which one your program uses: kedge"
        f" takes {mpi.title}. With {other.title} each rank would be rank 0 of 1. Give the program itself as the"
        " command, not a script"
    )
