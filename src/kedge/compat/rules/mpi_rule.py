# SPDX-License-Identifier: BSD-3-Clause
"""MPI: whether the launcher of a host starts ranks with the MPI of an image, and how else they are started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.verdict import NOTE, OK, WARNING, Judgement
from kedge.compat.versions import order

if TYPE_CHECKING:
    from kedge.compat.image.traits import ImageTraits
    from kedge.compat.target import Target

OPEN_MPI, MPICH = "Open MPI", "MPICH"  # families: what is of one can be started by, and swapped for, another of it
_FAMILIES = {
    "open mpi": OPEN_MPI,
    "openmpi": OPEN_MPI,
    "hpc-x": OPEN_MPI,
    "hpcx": OPEN_MPI,
    "mpich": MPICH,
    "intel mpi": MPICH,
    "intel(r) mpi": MPICH,
    "mvapich": MPICH,
    "cray mpich": MPICH,
    "parastation": MPICH,
}
_SRUN = "srun --mpi=pmix"


def judge_mpi(traits: ImageTraits, target: Target) -> list[Judgement]:
    """What is to be said about jobs of several ranks; nothing where either MPI is unknown."""
    inside, outside = traits.mpi.value, target.mpi
    ours, theirs = find_family(outside), find_family(inside)
    if not ours or not theirs:
        return []
    if ours != theirs:
        return [_judge_families(inside, outside, theirs)]
    if ours == MPICH:
        sentence = f"{inside} of the image and {outside} of the host are compatible (MPICH ABI): either can be used."
        return [Judgement("mpi", OK, sentence)]
    return [_judge_open_mpi(inside, outside)]


def find_family(name: str) -> str:
    """The family of `Intel MPI 2021.9`; empty where it is unknown."""
    lower = name.strip().lower()
    return next((family for word, family in _FAMILIES.items() if lower.startswith(word)), "")


def find_version(name: str) -> tuple[int, ...]:
    """(4, 1, 7) of `Open MPI 4.1.7rc1`."""
    return next((fields for word in name.split() if (fields := order(word.lstrip("v")))), ())


def _judge_families(inside: str, outside: str, family: str) -> Judgement:
    sentence = f"The image has {inside}, the host {outside}: the host's mpirun cannot start ranks of another MPI family"
    if family == OPEN_MPI:
        return Judgement("mpi", WARNING, f"{sentence}.", f"Start ranks with {_SRUN}, or with mpirun on one node.")
    remedy = "Start ranks with srun --mpi=pmi2, or with the image's own mpirun on one node."
    return Judgement("mpi", WARNING, f"{sentence}.", remedy)


def _judge_open_mpi(inside: str, outside: str) -> Judgement:
    theirs, ours = find_version(inside), find_version(outside)
    if not theirs or not ours:
        sentence = f"The image has {inside}, the host {outside}; it is unknown whether the host's mpirun can start it."
        return Judgement("mpi", NOTE, sentence, f"{_SRUN} does not need the host's mpirun.")
    if theirs[0] != ours[0]:
        sentence = (
            f"The image has {inside}, the host {outside}: the host's mpirun can start ranks of its own major version "
            f"only."
        )
        return Judgement("mpi", WARNING, sentence, f"Start ranks with {_SRUN}, or load Open MPI {theirs[0]} first.")
    if ours[:2] > theirs[:2]:
        sentence = (
            f"The image has {inside}, older than the host's {outside}. The same major version usually works; a host "
            f"that is not newer than the image is safest."
        )
        return Judgement("mpi", NOTE, sentence, f"If ranks do not find each other, use {_SRUN}.")
    return Judgement("mpi", OK, f"The host's mpirun ({outside}) can start ranks of the image ({inside}).")
