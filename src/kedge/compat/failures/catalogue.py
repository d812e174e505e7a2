# SPDX-License-Identifier: BSD-3-Clause
"""All known failures in one order: what stands first explains what stands after it."""

from __future__ import annotations

from kedge.compat.failures.containers import CONTAINERS
from kedge.compat.failures.cuda import CUDA
from kedge.compat.failures.driver import DRIVER
from kedge.compat.failures.endings import ENDINGS, EXCEPTION
from kedge.compat.failures.fabric import FABRIC
from kedge.compat.failures.failure import Failure
from kedge.compat.failures.files import FILES
from kedge.compat.failures.libraries import LIBRARIES
from kedge.compat.failures.memory import MEMORY
from kedge.compat.failures.mpi import MPI
from kedge.compat.failures.nccl import NCCL
from kedge.compat.failures.own_program import OWN_PROGRAM
from kedge.compat.failures.pmi import PMI
from kedge.compat.failures.python import PYTHON
from kedge.compat.failures.registry import REGISTRY
from kedge.compat.failures.rendezvous import RENDEZVOUS
from kedge.compat.failures.scheduler import SCHEDULER
from kedge.compat.failures.shell import SHELL

_SAYS_WHY = (
    *OWN_PROGRAM,
    *SCHEDULER,
    *MEMORY,
    *DRIVER,
    *LIBRARIES,
    *CUDA,
    *PMI,
    *MPI,
    *FABRIC,
    *REGISTRY,
    *CONTAINERS,
    *PYTHON,
    *FILES,
    *RENDEZVOUS,
    *NCCL,
    *ENDINGS,
)
CATALOGUE: tuple[Failure, ...] = (*_SAYS_WHY, *SHELL)
ORDER = tuple(failure.name for failure in (*_SAYS_WHY, EXCEPTION, *SHELL))

__all__ = ["CATALOGUE", "EXCEPTION", "ORDER"]
