# SPDX-License-Identifier: BSD-3-Clause
"""hybrid: whether the host's mpirun starts ranks with the image's MPI."""

from __future__ import annotations

from kedge.base.frozen import replace
from kedge.cluster.mpi import (
    DOUBTFUL,
    FAILS,
    HYBRID,
    OPEN_MPI,
    PMIX,
    SINGLETONS,
    UNKNOWN,
    WORKS,
    MpiFacts,
    MpiHost,
    MpiImage,
    MpiVerdict,
)
from kedge.compat.mpi.pmi import list_pmi
from kedge.compat.mpi.wording import SINGLETONS_SAID, explain_absence

_SRUN = "start ranks with srun, or with the image's own mpirun on one node"


def judge_hybrid(image: MpiImage, host: MpiHost) -> MpiVerdict:
    """The verdict on the mpirun that a user gets; where that fails, on another one of the host that works."""
    verdict = _judge(image, host.mpi)
    if not verdict.is_usable:
        for other in host.others:
            second = _judge(image, other)
            if second.is_usable:
                return second
    return verdict


def _judge(image: MpiImage, outside: MpiFacts | None) -> MpiVerdict:
    inside = image.mpi
    if outside is None or not outside.launcher:
        return _say(FAILS, "the host has no mpirun in PATH", "load an MPI module, or start ranks with srun")
    if inside is None:
        remedy = f"install {outside.title} in the image, or bind the host's" if image.is_searched else ""
        return _say(FAILS if image.is_searched else UNKNOWN, explain_absence(image), remedy)
    if not inside.abi or not outside.abi:
        strange = inside if not inside.abi else outside
        return _say(UNKNOWN, f"kedge cannot tell which MPI {strange.library or strange.launcher or strange.title} is")
    if inside.abi != outside.abi:
        reason = f"{outside.title} of the host cannot start ranks of {inside.title}: {SINGLETONS_SAID}"
        return _say(SINGLETONS, reason, _SRUN)
    verdict = _judge_open_mpi(inside, outside) if inside.abi == OPEN_MPI else _judge_mpich(inside, outside)
    return replace(verdict, launcher=outside.launcher)


def _judge_open_mpi(inside: MpiFacts, outside: MpiFacts) -> MpiVerdict:
    if inside.pmi == ():
        return _say(FAILS, f"{inside.title} of the image was built without PMIx, which mpirun needs", _SRUN)
    ours, theirs = outside.numbers, inside.numbers
    if not ours or not theirs:
        unknown = "image" if not theirs else "host"
        return _say(
            DOUBTFUL, f"the version of the {unknown}'s Open MPI is unknown; the major versions must be the same"
        )
    if ours[0] != theirs[0]:
        reason = (
            f"the image has {inside.title}, the host {outside.title}: mpirun starts ranks of its own major version only"
        )
        return _say(FAILS, reason, f"start ranks with srun --mpi=pmix, or load Open MPI {theirs[0]} on the host")
    if ours[:2] > theirs[:2]:
        reason = (
            f"the host's {outside.title} is newer than the image's {inside.title}: within one major version this "
            "usually works; safest is a host that is not newer"
        )
        return _say(DOUBTFUL, reason, "if ranks do not find each other, start them with srun --mpi=pmix")
    return _say(WORKS, f"the host's mpirun ({outside.title}) can start ranks of the image ({inside.title})")


def _judge_mpich(inside: MpiFacts, outside: MpiFacts) -> MpiVerdict:
    known = list_pmi(inside) or ()
    if known == (PMIX,):
        reason = (
            f"{inside.title} of the image was built for PMIx only, and the host's mpiexec ({outside.title}) serves "
        )
        return _say(SINGLETONS, f"{reason}PMI-1 and PMI-2: {SINGLETONS_SAID}", "start ranks with srun --mpi=pmix")
    if not known:
        return _say(FAILS, f"{inside.title} of the image was built without PMI", _SRUN)
    if inside.family != outside.family:
        reason = f"{inside.title} of the image and {outside.title} of the host are of one family and speak the same PMI"
        return _say(WORKS, reason)
    return _say(WORKS, f"the host's mpiexec ({outside.title}) can start ranks of the image ({inside.title})")


def _say(level: str, reason: str, remedy: str = "") -> MpiVerdict:
    return MpiVerdict(HYBRID, level, reason, remedy)
