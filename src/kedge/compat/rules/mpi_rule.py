# SPDX-License-Identifier: BSD-3-Clause
"""MPI: whether the launcher of a host starts ranks with the MPI of an image, as `compat/mpi` judges it.

`kedge mpi check` and `kedge launch` know more, because they read files; what is certain by names is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cluster.mpi import DOUBTFUL, FAILS, SINGLETONS, WORKS, MpiHost, MpiImage
from kedge.compat.mpi.judge_hybrid import judge_hybrid
from kedge.compat.mpi.pmi import choose_mpi_type
from kedge.compat.mpi.stated import parse_title, read_stated_mpi
from kedge.compat.verdict import NOTE, OK, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.target import Target
    from kedge.compat.traits import ImageTraits

_LEVELS = {WORKS: OK, DOUBTFUL: NOTE, FAILS: WARNING, SINGLETONS: WARNING}
_USUAL = ("pmix", "pmi2")  # what srun has at most sites


def judge_mpi(traits: ImageTraits, target: Target) -> list[Judgement]:
    """Judge jobs of several ranks; no judgement where either MPI is unknown."""
    inside = read_stated_mpi(traits)
    outside = replace(parse_title(target.mpi), launcher=target.mpi) if target.mpi else None
    if inside is None or outside is None or not inside.abi or not outside.abi:
        return []
    verdict = judge_hybrid(MpiImage(traits.name, (inside,)), MpiHost(outside))
    remedy = verdict.remedy
    if verdict.level == SINGLETONS:
        word = choose_mpi_type(inside, _USUAL)
        remedy = f"start ranks with srun --mpi={word}, or with the image's own mpirun on one node"
    level = _LEVELS.get(verdict.level, NOTE)
    return [Judgement("mpi", level, _make_sentence(verdict.reason), _make_sentence(remedy))]


def _make_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
