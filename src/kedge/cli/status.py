# SPDX-License-Identifier: BSD-3-Clause
"""`kedge status JOB`: shows the state of a job, and why it is pending or failed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from kedge.cli.options import add_settings
from kedge.cluster.job_state import JobStatus, State

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.find_job import FoundJob

JOB_HELP = "job id, ID_INDEX for a task of an array, job name, or 'last'"
_SHOWN_TASKS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs."""
    parser.add_argument("jobs", nargs="*", metavar="JOB", default=["last"], help=f"{JOB_HELP} (default: last)")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show each job."""
    from kedge.jobs.find_job import locate_job
    from kedge.jobs.status import read_status

    described = []
    for word in arguments.jobs:
        cluster, job = locate_job(console.settings, console.environ, word)
        statuses = read_status(cluster, job)
        if console.json:
            described.append(_as_dict(job, statuses, cluster))
        else:
            _show(job, statuses, cluster, console)
    if console.json:
        console.print_json(described[0] if len(described) == 1 else described)
    warn_of_site_failures(console)
    return 0


def warn_of_site_failures(console: Console) -> None:
    """Once a command has searched all its logs: say what is wrong with the site's own table of failures."""
    from kedge.compat.failures.catalogue import find_site_problem

    if problem := find_site_problem():
        console.progress.warn(problem)


def _as_dict(job: FoundJob, statuses: Sequence[JobStatus], cluster: Cluster) -> dict[str, object]:
    from kedge.jobs.submitted_ids import show_output

    record = job.record
    # kedge reads the logs of these only: an array may have thousands of tasks that failed for one reason
    explained = [status for status in statuses if status.state is State.FAILED][:_SHOWN_TASKS]
    return {
        "id": job.id,
        "name": record.name if record else statuses[0].name,
        "site": cluster.site.name,
        "scheduler": cluster.backend.name,
        "script": str(record.script) if record else None,
        "output": show_output(record) if record else None,
        "tasks": [
            {
                **status.as_dict(),
                **_explain(job, status, cluster),
                **(_describe_clue(job, status) if status in explained else {}),
            }
            for status in statuses
        ],
    }


def _describe_clue(job: FoundJob, status: JobStatus) -> dict[str, object]:
    from kedge.jobs.failure_clues import find_failure_clue

    clue = find_failure_clue(job.record, status)
    return {"clue": clue.as_dict()} if clue is not None else {}


def _show(job: FoundJob, statuses: Sequence[JobStatus], cluster: Cluster, console: Console) -> None:
    from kedge.cli.redaction import escape_line

    is_array = len(statuses) > 1 or statuses[0].index is not None
    if is_array:
        console.print(f"Job {escape_line(job.name)}: {count_states(statuses)}")
    for status in statuses[:_SHOWN_TASKS]:
        title = f"  task {status.shown_id.partition('_')[2]}" if is_array else f"Job {escape_line(job.name)}"
        reasons = _explain(job, status, cluster)
        text, word = describe_state(status), status.state.word
        if text.startswith(word):
            text = console.paint(word, word) + text.removeprefix(word)
        console.print(f"{title}: {text}{', will never start' if reasons['stuck'] else ''}")
        if reasons["why"]:
            console.print(f"    {reasons['why']}")
        _show_clue(job, status, console)
    if len(statuses) > _SHOWN_TASKS:
        console.print(f"  {len(statuses) - _SHOWN_TASKS} more tasks: {count_states(statuses[_SHOWN_TASKS:])}")
    console.print(f"  site: {cluster.site.name}")
    if job.record is not None:
        console.print(f"  script: {job.record.script}")
        _show_logs(job, console)


def count_states(statuses: Sequence[JobStatus]) -> str:
    """`2 completed, 1 failed`."""
    counts = {state: sum(status.state is state for status in statuses) for state in State}
    return ", ".join(f"{count} {state.word}" for state, count in counts.items() if count)


def _explain(job: FoundJob, status: JobStatus, cluster: Cluster) -> dict[str, object]:
    """Why it is pending or failed, and whether it will never start."""
    from kedge.jobs.wait import find_obstacle

    obstacle = find_obstacle(cluster, job.record, status)
    return {"why": obstacle or cluster.backend.explain(status) or status.reason, "stuck": bool(obstacle)}


def _show_clue(job: FoundJob, status: JobStatus, console: Console) -> None:
    """The cause that the output of a failed task names."""
    from kedge.cli.redaction import escape_controls
    from kedge.jobs.failure_clues import find_failure_clue

    clue = find_failure_clue(job.record, status)
    if clue is not None:
        console.print(f"    output: {escape_controls(clue.line)}")
        console.print(f"    cause: {escape_controls(clue.cause)}")
        console.print(f"    remedy: {clue.remedy}")


def _show_logs(job: FoundJob, console: Console) -> None:
    from kedge.jobs.logs import find_logs

    logs = find_logs(job.record, job.index) if job.record else []
    if logs:
        console.print(f"  output: {logs[0].path}" + (f" and {len(logs) - 1} more" if len(logs) > 1 else ""))


def describe_state(status: JobStatus) -> str:
    """`running on n1 since 12:30 (5 min)`, `failed with exit code 3 after 0:10:00`."""
    from kedge.base.duration import format_duration
    from kedge.jobs.status import BEING_CANCELLED

    text = "being cancelled" if status.reason == BEING_CANCELLED else status.outcome
    if status.state is State.UNKNOWN:
        text += f" (the scheduler's word: '{status.raw}')"
    if status.nodes:
        text += f" on {status.nodes}"
    if status.started and status.ended:
        text += f", after {format_duration(max(round(status.ended - status.started), 0))}"
    elif status.started:
        text += f", for {format_duration(max(round(time.time() - status.started), 0))}"
        text += f" of {format_duration(status.time_limit)}" if status.time_limit else ""
    return text + _describe_attempts(status)


def _describe_attempts(status: JobStatus) -> str:
    """Describe the attempts of a job that the scheduler put back into the queue."""
    if status.attempts and status.state in (State.QUEUED, State.HELD):
        return f" again after {status.attempts} attempt{'' if status.attempts == 1 else 's'}"
    return f" (attempt {status.attempts})" if status.attempts > 1 else ""
