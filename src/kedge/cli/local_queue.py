# SPDX-License-Identifier: BSD-3-Clause
"""`kedge local-queue`: the local queue of this host: submit, run, list, show, cancel.

`kedge submit` uses it on hosts without a scheduler, as it uses sbatch or qsub elsewhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.duration import format_duration
from kedge.base.frozen import as_dict
from kedge.errors import UsageError
from kedge.jobs import local_queue as operations
from kedge.jobs.local.directives import OPTIONS

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.cluster.job_state import JobStatus


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    submit = commands.add_parser("submit", help="Submit a script; its #KEDGE lines are options")
    _add_options(submit)
    submit.add_argument("script", metavar="SCRIPT", type=Path, help="script whose first line is #!/bin/bash or similar")
    submit.add_argument("arguments", metavar="[ARGUMENT ...]", nargs=argparse.REMAINDER, help="arguments of the script")
    running = commands.add_parser("run", help="Wait for free resources, then run a command in this terminal")
    _add_options(running)
    running.add_argument("arguments", metavar="COMMAND [ARGUMENT ...]", nargs=argparse.REMAINDER, help="command to run")
    listing = commands.add_parser("list", help="List pending and running jobs, and those of the last hour")
    listing.add_argument("-a", "--all", action="store_true", help="list all jobs, however old")
    show = commands.add_parser("show", help="Show the details of jobs")
    show.add_argument("ids", metavar="ID", nargs="+", help="job id (12), or one task of an array (12_3)")
    cancel = commands.add_parser("cancel", help="Cancel jobs")
    cancel.add_argument("ids", metavar="ID", nargs="+", help="job id (12), or one task of an array (12_3)")
    cancel.add_argument("--signal", metavar="NAME", default="", help="only send this signal")
    serve = commands.add_parser("serve", help="Serve the queue; kedge starts this itself")
    serve.add_argument("--task", metavar="ID", default="", help="run this task (default: start pending jobs)")
    serve.add_argument("file", metavar="FILE", type=int, help="file descriptor of the lock")
    serve.add_argument("root", metavar="DIR", type=Path, help="directory of the queue")


def _add_options(parser: argparse.ArgumentParser) -> None:
    for name, option in OPTIONS.items():
        text = option.summary.replace("%", "%%")
        if option.metavar:
            parser.add_argument(f"--{name}", dest=f"job_{name}", metavar=option.metavar, help=text)
        else:
            parser.add_argument(f"--{name}", dest=f"job_{name}", action="store_const", const="yes", help=text)


def _read_options(arguments: argparse.Namespace) -> dict[str, str]:
    given = {name: getattr(arguments, f"job_{name}") for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"submit": _submit, "run": _run, "list": _list, "show": _show, "cancel": _cancel, "serve": _serve}
    return commands[arguments.command](arguments, console)


def _submit(arguments: argparse.Namespace, console: Console) -> int:
    queue, id = operations.submit_script(
        arguments.script, _read_options(arguments), arguments.arguments, console.environ
    )
    try:  # now: the job is in the queue, whatever happens next
        console.write_bytes((json.dumps({"id": str(id)}) if console.json else str(id)).encode() + b"\n")
    finally:
        operations.start_pending(queue, console.environ)
    return 0


def _run(arguments: argparse.Namespace, console: Console) -> int:
    words = arguments.arguments[1:] if arguments.arguments[:1] == ["--"] else arguments.arguments
    if not words:
        raise UsageError(
            "the command is missing", hint="usage: kedge local-queue run [options] -- COMMAND [ARGUMENT ...]"
        )
    return operations.run_command(words, _read_options(arguments), console.environ)


def _list(arguments: argparse.Namespace, console: Console) -> int:
    _print(operations.list_jobs(console.environ, everything=arguments.all), console)
    return 0


def _show(arguments: argparse.Namespace, console: Console) -> int:
    _print(operations.show_jobs(arguments.ids, console.environ), console)
    return 0


def _cancel(arguments: argparse.Namespace, console: Console) -> int:
    operations.cancel_jobs(arguments.ids, arguments.signal, console.environ)
    if console.json:
        console.print_json({"cancelled": arguments.ids})
    return 0


def _serve(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.task:
        operations.serve_task(arguments.root, arguments.task, arguments.file, console.environ)
    else:
        operations.serve_keeper(arguments.root, arguments.file, console.environ)
    return 0


def _print(statuses: Sequence[JobStatus], console: Console) -> None:
    if console.json:
        console.print_json({"jobs": [as_dict(status) for status in statuses]})
        return
    rows = [
        (status.shown_id, status.name, status.state.word, _show_time(status), _show_reason(status))
        for status in statuses
    ]
    console.print_table(("ID", "NAME", "STATE", "TIME", "REASON"), rows)


def _show_time(status: JobStatus) -> str:
    if status.started is None:
        return ""
    return format_duration(int((status.ended or time.time()) - status.started))


def _show_reason(status: JobStatus) -> str:
    if status.reason or not (status.exit_code or status.signal):
        return status.reason
    return f"signal {status.signal}" if status.signal else f"exit code {status.exit_code}"
