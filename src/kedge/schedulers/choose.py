# SPDX-License-Identifier: BSD-3-Clause
"""The modules of schedulers by name; only the one that is used is loaded."""

from __future__ import annotations

import importlib

from kedge.errors import NoScheduler
from kedge.schedulers.backend import Backend

_PLACES = {
    "slurm": ("kedge.schedulers.slurm", "SLURM"),
    "gridengine": ("kedge.schedulers.gridengine", "GRIDENGINE"),
    "pbs": ("kedge.schedulers.pbs", "PBS"),
    "local": ("kedge.schedulers.local", "LOCAL"),
}
BACKENDS = tuple(_PLACES)


def find_backend(name: str) -> Backend:
    """The scheduler's module."""
    if name not in _PLACES:
        raise NoScheduler(f"kedge does not know the scheduler '{name}'", hint=f"it is one of: {', '.join(BACKENDS)}")
    module, constant = _PLACES[name]
    backend: Backend = getattr(importlib.import_module(module), constant)
    return backend
