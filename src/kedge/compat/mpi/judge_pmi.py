# SPDX-License-Identifier: BSD-3-Clause
"""pmi: whether srun, which serves PMI itself, starts ranks of the image's MPI; no MPI of the host takes part."""

from __future__ import annotations

from kedge.cluster.mpi import (
    DOUBTFUL,
    FAILS,
    OPEN_MPI,
    PMI_ONLY,
    PMIX,
    SINGLETONS,
    UNKNOWN,
    WORKS,
    MpiFacts,
    MpiHost,
    MpiImage,
    MpiVerdict,
)
from kedge.compat.mpi.pmi import choose_mpi_type, list_pmi
from kedge.compat.mpi.wording import SINGLETONS_SAID, explain_absence, name_kinds

_INTEL_LIBRARY = "I_MPI_PMI_LIBRARY"


def judge_pmi(image: MpiImage, host: MpiHost) -> MpiVerdict:
    """The verdict, with the word for srun's --mpi."""
    inside = image.mpi
    if host.has_slurm is False:
        return _say(FAILS, "only Slurm's srun starts ranks without an mpirun, and this host has no Slurm")
    if inside is None:
        return _say(FAILS if image.is_searched else UNKNOWN, explain_absence(image))
    known = list_pmi(inside)
    if known == ():
        return _say(FAILS, f"{inside.title} of the image was built without PMI", "take an image whose MPI has PMIx")
    if known is None:
        return _say(UNKNOWN, f"it is unknown which kinds of PMI {inside.title} of the image speaks")
    if host.plugins is None:
        wanted = choose_mpi_type(inside, ("pmix", "pmi2", "cray_shasta"))
        reason = f"{inside.title} of the image speaks {name_kinds(known)}; it is unknown what srun here has"
        return _say(DOUBTFUL, reason, "look: srun --mpi=list", mpi_type=wanted)
    wanted = choose_mpi_type(inside, host.plugins)
    if not wanted:
        return _refuse(inside, known, host.plugins)
    if inside.needs_pmi_library:
        return _judge_intel(inside, host, wanted)
    return _accept(inside, known, wanted)


def _accept(inside: MpiFacts, known: tuple[str, ...], wanted: str) -> MpiVerdict:
    if wanted.startswith(PMIX) and inside.pmix_version.startswith("1."):
        reason = f"the image has PMIx {inside.pmix_version}, and the PMIx of Slurm may be too new for it"
        return _say(DOUBTFUL, reason, "try it with the world-size check, or take a newer image", mpi_type=wanted)
    reason = f"srun --mpi={wanted} serves what {inside.title} of the image speaks ({name_kinds(known)})"
    return _say(WORKS, reason, mpi_type=wanted)


def _judge_intel(inside: MpiFacts, host: MpiHost, wanted: str) -> MpiVerdict:
    """Intel MPI speaks PMI through a library that it is told of; without it every rank is alone."""
    own = next((value for name, value in inside.variables if name == _INTEL_LIBRARY), "")
    if own:
        return _say(WORKS, f"srun --mpi={wanted}; the image sets {_INTEL_LIBRARY}={own}", mpi_type=wanted)
    if host.pmi_library:
        reason = f"srun --mpi={wanted}, with {_INTEL_LIBRARY}={host.pmi_library}, which is mounted into the container"
        return _say(WORKS, reason, mpi_type=wanted, variables=((_INTEL_LIBRARY, host.pmi_library),))
    reason = (
        f"{inside.title} needs {_INTEL_LIBRARY} under srun, and Slurm's libpmi2.so was not found: {SINGLETONS_SAID}"
    )
    return _say(SINGLETONS, reason, f"mount it and name it: --env {_INTEL_LIBRARY}=/PATH/libpmi2.so", mpi_type=wanted)


def _refuse(inside: MpiFacts, known: tuple[str, ...], plugins: tuple[str, ...]) -> MpiVerdict:
    reason = f"{inside.title} of the image speaks {name_kinds(known)}, and srun here has {', '.join(plugins)} only"
    remedy = "start ranks with mpirun (--launcher mpirun)"
    if inside.family == OPEN_MPI:
        return _say(FAILS, f"{reason}: it ends with 'OMPI was not built with SLURM's PMI support'", remedy)
    return _say(SINGLETONS, f"{reason}: {SINGLETONS_SAID}", remedy)


def _say(
    level: str, reason: str, remedy: str = "", *, mpi_type: str = "", variables: tuple[tuple[str, str], ...] = ()
) -> MpiVerdict:
    return MpiVerdict(PMI_ONLY, level, reason, remedy, mpi_type, variables=variables)
