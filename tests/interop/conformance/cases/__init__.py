# SPDX-License-Identifier: BSD-3-Clause
"""All cases."""

from __future__ import annotations

from tests.interop.conformance.cases import (
    binds,
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
    *processes.CASES,
    *places.CASES,
    *layers.CASES,
    *isolation.CASES,
    *references.CASES,
    *instances.CASES,
]
