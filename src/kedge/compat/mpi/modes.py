# SPDX-License-Identifier: BSD-3-Clause
"""The rules: of each way to start ranks in containers, whether it works with the MPI of an image and that of a host.

hybrid: the host's mpirun starts ranks with the image's MPI. bind: the host's MPI stands in for the image's. pmi: srun
starts them, and no mpirun of the host takes part. contained: the image's mpirun inside one container, on one node.
"""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.mpi import (
    BIND,
    CONTAINED,
    DOUBTFUL,
    FAILS,
    HYBRID,
    MODES,
    OPEN_MPI,
    PMI_ONLY,
    UNKNOWN,
    WORKS,
    MpiFacts,
    MpiHost,
    MpiImage,
    MpiVerdict,
)
from kedge.compat.mpi.judge_bind import judge_bind
from kedge.compat.mpi.judge_hybrid import judge_hybrid
from kedge.compat.mpi.judge_pmi import judge_pmi
from kedge.compat.mpi.wording import explain_absence

_PREFERENCE = (
    (PMI_ONLY, WORKS),
    (HYBRID, WORKS),
    (CONTAINED, WORKS),  # on one node only: elsewhere its verdict is another
    (PMI_ONLY, DOUBTFUL),
    (HYBRID, DOUBTFUL),
)


def judge_modes(image: MpiImage, host: MpiHost, *, nodes: int | None = None) -> tuple[MpiVerdict, ...]:
    """Return one verdict for each of MODES, in their order; `nodes` of the launch, None where that is open."""
    verdicts = {
        HYBRID: judge_hybrid(image, host),
        BIND: judge_bind(image, host),
        PMI_ONLY: judge_pmi(image, host),
        CONTAINED: _judge_contained(image, nodes),
    }
    return tuple(verdicts[mode] for mode in MODES)


def choose_mode(verdicts: Sequence[MpiVerdict]) -> MpiVerdict | None:
    """The way to take by default; None where none is usable. Bind is never taken unasked: it changes the library."""
    by_key = {(verdict.mode, verdict.level): verdict for verdict in verdicts}
    return next((by_key[key] for key in _PREFERENCE if key in by_key), None)


def _isolate(mpi: MpiFacts) -> tuple[tuple[str, str], ...]:
    """Open MPI before 5 looks for ssh or for the scheduler's programs first, which images do not have."""
    return (("OMPI_MCA_plm", "isolated"),) if mpi.family == OPEN_MPI and mpi.numbers < (5,) else ()


def _judge_contained(image: MpiImage, nodes: int | None) -> MpiVerdict:
    mpi = image.mpi
    if mpi is None:
        level = FAILS if image.is_searched else UNKNOWN
        return MpiVerdict(CONTAINED, level, explain_absence(image))
    if nodes is not None and nodes > 1:
        reason = f"mpirun inside the container starts ranks on its own node only, and the launch has {nodes} nodes"
        return MpiVerdict(CONTAINED, FAILS, reason, "take another way, or one node")
    if mpi.launcher:
        reason = f"the image's own {mpi.launcher} starts all ranks inside one container, on one node"
        return MpiVerdict(CONTAINED, WORKS, reason, launcher=mpi.launcher, variables=_isolate(mpi))
    if image.is_searched:
        return MpiVerdict(CONTAINED, FAILS, "the image has an MPI library, but no mpirun", "install its mpirun")
    return MpiVerdict(CONTAINED, DOUBTFUL, "the image's config names an MPI, but not whether its mpirun is there")
