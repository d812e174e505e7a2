# SPDX-License-Identifier: BSD-3-Clause
"""All cases."""

from __future__ import annotations

from tests.interop.conformance.cases import (
    binds,
    bound_scripts,
    commands,
    entrypoints,
    environment,
    instances,
    isolation,
    layers,
    places,
    processes,
    references,
)

MODULES = (
    *(environment, entrypoints, binds, bound_scripts, processes, places, layers, isolation, references, instances),
    *(commands,),
)
CASES = [case for module in MODULES for case in module.CASES]
