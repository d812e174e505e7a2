# SPDX-License-Identifier: BSD-3-Clause
"""`kedge rerun RECORD`: repeats a recorded run, or shows what differs now."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.options import add_dry_run, add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.runs.rerun import Rerun


def configure(parser: argparse.ArgumentParser) -> None:
    """Which run, and what to do where it would be another."""
    parser.add_argument("record", metavar="RECORD", help="file of --record, or a job of 'kedge submit'")
    parser.add_argument("--anyway", action="store_true", help="run it even if something differs now")
    parser.add_argument("--record", dest="again", action="store_true", help="record this run, too")
    parser.add_argument("--record-to", metavar="FILE", default="", help="record this run in FILE")
    add_settings(parser, "site", "job_directory")
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Compare, show, and become the run."""
    from kedge.jobs.runs.rerun import plan_rerun, refuse_differences
    from kedge.system.spawn import replace_process
    from kedge.system.start_kedge import own_command

    plan = plan_rerun(_read(arguments.record, console), console.environ)
    if console.dry_run:
        _show(plan, console)
        return 0
    refuse_differences(plan, anyway=arguments.anyway)
    for difference in plan.differences:
        console.progress.warn(f"{difference.what} differs: {difference.then} then, {difference.now} now")
    if Path(plan.directory).is_dir():
        os.chdir(plan.directory)
    words = [plan.words[0], *_ask_for_record(arguments), *plan.words[1:]]
    argv = own_command(*words)
    console.close()
    return replace_process(argv[0], argv, plan.environ)


def _ask_for_record(arguments: argparse.Namespace) -> list[str]:
    words = ["--record"] if arguments.again else []
    return [*words, "--record-to", os.path.abspath(arguments.record_to)] if arguments.record_to else words  # noqa: PTH100


def _read(word: str, console: Console) -> dict[str, Any]:
    """The record in a file, or that of a job."""
    from kedge.jobs.runs.run_record import read_record

    if "/" in word or os.path.lexists(word) or word.endswith(".json"):
        return read_record(Path(word))
    from kedge.errors import JobNotFound
    from kedge.jobs.find_job import locate_job
    from kedge.jobs.runs.run_record import require_run_record

    _, job = locate_job(console.settings, console.environ, word)
    if job.record is None:
        raise JobNotFound(f"job '{word}' has no record: it was not submitted with kedge", hint="name a record's file")
    return require_run_record(job.record, job.index)


def _show(plan: Rerun, console: Console) -> None:
    if console.json:
        console.print_json(
            {
                "command": ["kedge", *plan.words],
                "directory": plan.directory,
                "differences": [each.as_dict() for each in plan.differences],
            }
        )
        return
    from kedge.cli.redaction import escape_line

    for each in plan.differences:
        console.print(escape_line(f"{each.what}: {each.then} then, {each.now} now"))
    if not plan.differences:
        console.print("Nothing differs")
    console.print(f"cd {escape_line(shlex.quote(plan.directory))}")
    console.print(escape_line(shlex.join(["kedge", *plan.words])))
