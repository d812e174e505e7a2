# SPDX-License-Identifier: BSD-3-Clause
"""What a job was given and what it used, in the same values for all schedulers."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen


@frozen
class JobUsage(JsonValue):
    """One job or task of an array, as accounting knows it; None is unknown. Memory is that of the fullest node."""

    seconds: float | None = None  # how long it ran
    cpus: int | None = None  # that it had, on all nodes
    cpu_seconds: float | None = None
    memory: int | None = None  # the most that it used, as the scheduler counts it
    memory_asked: int | None = None
    gpus: int | None = None  # that it had, on all nodes
