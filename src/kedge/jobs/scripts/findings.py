# SPDX-License-Identifier: BSD-3-Clause
"""What a rule looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kedge.base.frozen import JsonValue
from kedge.cluster.schedulers.script_request import ScriptRequest
from kedge.cluster.site import Queue, Site
from kedge.jobs.scripts.script import BatchScript


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # the job is refused, cannot start, or waits for ever
    WARNING = "warning"  # it probably does not do what its author wants
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class ScriptFinding(JsonValue):
    """One thing found at one line."""

    rule: str
    severity: Severity
    line: int
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Case:
    """A script, what it asks for, and what is known about where it will run."""

    script: BatchScript
    request: ScriptRequest
    site: Site | None
    queue: Queue | None  # the one that is asked for, when the site has it
    has_file: Callable[[str], bool | None]  # whether a file or directory is there; None: nobody can know

    @property
    def has_gpus_unasked(self) -> bool:
        """Whether the queue gives whole nodes with their GPUs."""
        return self.queue is not None and self.queue.gives_gpus_unasked

    @property
    def will_have_gpus(self) -> bool:
        """Whether the job gets GPUs."""
        return self.request.wants_gpus or self.has_gpus_unasked


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check yields: where, what, and the remedy where the rule's own does not fit."""

    line: int
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """One row of the table of rules."""

    id: str
    severity: Severity
    title: str  # for the table in the guide
    remedy: str
    check: Callable[[Case], Iterator[CheckResult]]
