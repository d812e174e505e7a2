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

CASES = [
    *environment.CASES,
    *entrypoints.CASES,
    *binds.CASES,
    *bound_scripts.CASES,
    *processes.CASES,
    *places.CASES,
    *layers.CASES,
    *isolation.CASES,
    *references.CASES,
    *instances.CASES,
    *commands.CASES,
]
