# SPDX-License-Identifier: BSD-3-Clause
"""Before the first step of a definition file: what it takes of this host is looked at, named, or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kedge.builds.copies.context import open_host_files
from kedge.builds.patterns import BadPattern, expand_braces
from kedge.builds.request import HostItem
from kedge.builds.step_values import CopyStep, HostScriptStep, Stage, Step, name_place
from kedge.builds.steps.host_scripts import choose_folders
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.session import BuildSession
from kedge.errors import KedgeError


def name_host_files(session: BuildSession, origins: FileOrigins, stages: Sequence[Stage]) -> None:
    """Say what lies outside and what is left out, one line each; raises InvalidRecipe for what must not be taken."""
    if origins.is_definition:
        for step in _list_host_steps(stages):
            try:
                _look_at(session, step)
            except KedgeError as problem:
                name_place(problem, step.place)
                raise
    session.reach.settle()


def _list_host_steps(stages: Sequence[Stage]) -> Iterator[CopyStep | HostScriptStep]:
    """What a definition file takes does not depend on the configs of its bases."""
    steps: Iterator[Step] = (step for stage in stages for step in stage.plan({}).steps)
    for step in steps:
        if isinstance(step, HostScriptStep) or (isinstance(step, CopyStep) and step.origin.stage is None):
            yield step


def _look_at(session: BuildSession, step: CopyStep | HostScriptStep) -> None:
    reach = session.reach
    if isinstance(step, HostScriptStep):
        if session.request.uses_host:
            text = "runs on this host with all that you may do (--setup-on-host)"
            reach.add(HostItem(step.section, step.place.line, text, "/"))
        else:
            choose_folders(reach, step)
        return
    origin = open_host_files(session.context, reach)  # of its own: a script may yet make what is copied
    with contextlib.suppress(BadPattern):
        for pattern in (pattern for source in step.sources for pattern in expand_braces(source)):
            origin.read_ahead(pattern, step.place)
