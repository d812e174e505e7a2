# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch --record`: one record for all ranks, written by the launch itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kedge.cli.record_run import drop_record_options
from kedge.jobs.runs.recorder import RunRecorder
from kedge.jobs.runs.run_facts import RunRequest

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.launch.plan import LaunchPlan

_FAILED = 1  # where the launch itself fails, and says why


def run_recorded(arguments: argparse.Namespace, plan: LaunchPlan, console: Console, launch: Callable[[], int]) -> int:
    """Run the launch; its status."""
    options = _list_options(arguments)
    request = RunRequest(
        "launch",
        arguments.image,
        tuple(options),
        tuple(arguments.words),
        arguments.record_to,
        has_gpus="--nv" in options or "--nvccli" in options,
        launch={
            "launcher": plan.launcher,
            "contract": str(plan.contract),
            "ranks": plan.shape.size,
            "nodes": [node.name for node in plan.shape.nodes],
            "mpi": plan.order.mpi or None,
            "mpi_mode": plan.mode or None,
            "mpi_type": plan.mpi_type or None,
        },
    )
    recorder = RunRecorder(request, console.environ, lambda level, text: _say(console, level, text))
    recorder.begin()
    status = _FAILED
    try:
        status = launch()
    finally:
        recorder.end(status)
    return status


def _list_options(arguments: argparse.Namespace) -> list[str]:
    """The words between `launch` and the image, as they were typed."""
    words = sys.argv[1:]
    behind = words[words.index("launch") + 1 :] if "launch" in words else []
    end = len(behind) - len(arguments.words) - 1
    while end >= 0 and behind[end] != arguments.image:  # a `--` that argparse took away
        end -= 1
    return drop_record_options(behind[: max(end, 0)])


def _say(console: Console, level: str, text: str) -> None:
    (console.progress.warn if level == "warn" else console.write_note)(text)
