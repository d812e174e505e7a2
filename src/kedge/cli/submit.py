# SPDX-License-Identifier: BSD-3-Clause
"""`kedge submit`: a job from flags or from kedge.toml into the queue of this site's scheduler."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_dry_run, add_settings
from kedge.errors import UsageError
from kedge.frozen import frozen, replace

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.model.job import Job
    from kedge.ops.jobs.cluster import Cluster
    from kedge.ops.jobs.submit import SubmitPlan, Submitted


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of jobs, and where to read them from."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[IMAGE [COMMAND [ARGUMENT ...]]]",
        help="what to run; without it, what kedge.toml describes. '-' as IMAGE runs the command without a container",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="the description to read (kedge.toml in this directory)")
    parser.add_argument("-j", "--job", action="append", metavar="NAME", help="a job of the description; repeatable")
    parser.add_argument("--all", action="store_true", help="all jobs of the description")
    parser.add_argument("--script", metavar="FILE", help="write the script there too; '-' prints it")
    parser.add_argument("--wait", action="store_true", help="wait for the end; the status says whether it went well")
    add_job_options(parser)
    add_settings(parser, "site", "job_directory", "pull_directory")
    add_dry_run(parser)


@frozen
class _JobSet:
    """The jobs to submit, in an order in which each comes after those it waits for."""

    jobs: tuple[tuple[str, Job], ...]  # each with the name by which others of the same description wait for it
    folder: Path  # where their relative names begin
    site: str = ""  # what the description says, unless something else does
    others: tuple[tuple[str, str], ...] = ()  # what the rest of the description's jobs are called


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Submit one job or several."""
    from kedge.ops.jobs.cluster import open_cluster

    asked = _read_jobs(arguments)
    if arguments.script and arguments.script != "-" and len(asked.jobs) > 1:
        raise UsageError("--script names one file, and several jobs are submitted", hint="choose one with -j NAME")
    cluster = open_cluster(console.settings, console.environ, described=asked.site)
    plans = _plan_all(asked, cluster, console)
    for plan in plans:
        for warning in plan.warnings:
            console.progress.warn(warning)
        for note in plan.notes:
            console.progress.note(note)
    if console.dry_run:
        _show(plans, console)
        return 0
    is_first = not cluster.site.queues and cluster.backend.name != "local" and not cluster.records.list_keys()
    submitted: dict[str, Submitted] = {}
    for (name, job), first in zip(asked.jobs, plans, strict=True):
        # one that waits for another of these has to know the id which that one got
        waits = any(each.job in submitted for each in job.dependencies)
        ids = {**dict(asked.others), **{other: done.record.id for other, done in submitted.items()}}
        pinned = replace(job, image=first.job.image)  # looked up already
        plan = _make_plan(pinned, ids, asked.folder, cluster, console) if waits else first
        submitted[name] = _submit(plan, arguments, console)
    if is_first:
        _greet(console)
    if arguments.wait:
        _wait(list(submitted.values()), cluster, console)
    if console.json:
        console.print_json(_one_or_all([each.as_dict() for each in submitted.values()]))
    return 0


def _greet(console: Console) -> None:
    """Say once, with the first job, that more can be known about a cluster without a profile of its own."""
    console.progress.note(
        "kedge knows no limits of this cluster, so requests beyond them wait for ever instead of being refused; "
        "'kedge site init' learns them"
    )


def _plan_all(asked: _JobSet, cluster: Cluster, console: Console) -> list[SubmitPlan]:
    """All of them before the first is submitted, so that one that is refused leaves no others in the queue."""
    ids = {**dict(asked.others), **{name: "0" for name, _ in asked.jobs}}
    return [_make_plan(job, ids, asked.folder, cluster, console) for _, job in asked.jobs]


def _one_or_all(told: Sequence[object]) -> object:
    return told[0] if len(told) == 1 else told


def _read_jobs(arguments: argparse.Namespace) -> _JobSet:
    """What words, flags and the description say."""
    from kedge.model.job import Job

    words = arguments.words[1:] if arguments.words[:1] == ["--"] else list(arguments.words)
    if arguments.file or arguments.job or arguments.all or not words:
        return _read_file(arguments, words)
    image = "" if words[0] == "-" else words[0]
    if not image and not words[1:]:
        raise UsageError("there is no command to run", hint="kedge submit - COMMAND runs one without a container")
    _refuse_misread(image)
    _refuse_late_options(arguments, words)
    base = Job(image=image, command=tuple(words[1:]), name=_name_after(words))
    return _JobSet((("", read_job_options(arguments, base)),), Path.cwd())


def _refuse_misread(image: str) -> None:
    """Refuse what another tool's option would have taken, as `exec` does: `-v /data:/data`."""
    if "=" in image or ":/" in image:
        from kedge.runtime.words.misread import explain_misread  # late: few images look so

        misread = explain_misread(image, (), sys.argv)
        if misread is not None:
            raise misread


def _refuse_late_options(arguments: argparse.Namespace, words: list[str]) -> None:
    """Refuse options behind the image, which would be the job's name and program; say the line to type."""
    late = words[1:]
    takes_options = arguments.described_runscript or ("--torchrun", "torchrun") in (arguments.described_parallel or ())
    if not late or not late[0].startswith("-") or takes_options:
        return
    if late[0] == "--":
        options, rest = [], late[1:]
    else:
        from kedge.cli.main import make_parser  # late: only for a mistake

        try:
            rest = list(make_parser("submit").parse_args(late).words)
        except UsageError as problem:
            raise UsageError(
                f"'{late[0]}' stands where the command should be; options come before the image", hint=problem.hint
            ) from None
        options = late[: len(late) - len(rest)]
    typed = sys.argv[1 : -len(words)] if sys.argv[-len(words) :] == words else ["submit"]
    before = [word for word in typed if word != "--"]
    raise UsageError(
        f"'{late[0]}' stands where the command should be; options come before the image",
        hint=f"write: {shlex.join(['kedge', *before, *options, words[0], *rest])}",
    )


def _read_file(arguments: argparse.Namespace, words: list[str]) -> _JobSet:
    from kedge.jobs.description import find_description, read_description

    description = read_description(Path(arguments.file).absolute() if arguments.file else find_description(Path.cwd()))
    names = list(arguments.job or (description.names if arguments.all or len(description.names) == 1 else ()))
    if not names:
        raise UsageError(
            f"{description.path} describes several jobs: {', '.join(description.names)}",
            hint="choose with -j NAME, or submit them all with --all",
        )
    if words and len(names) > 1:
        raise UsageError("words for the command go to one job, and several are submitted")
    # a job that a chosen one waits for was submitted before, unless it is chosen too
    chosen = [name for name in description.order(names) if name in names]
    described = [(name, description.job(name)) for name in chosen]
    jobs = [(name, replace(job, command=(*job.command, *words))) for name, job in described]
    ready = tuple((name, read_job_options(arguments, job)) for name, job in jobs)
    others = tuple((name, job.name) for name, job in description.jobs.items() if name not in chosen)
    return _JobSet(ready, description.folder, description.site, others)


def _name_after(words: list[str]) -> str:
    """What a job is called whose user gave it no name: its program, else its image."""
    return Path(words[1] if len(words) > 1 else words[0].rpartition("/")[2].partition(":")[0]).name or "kedge"


def _make_plan(job: Job, names: dict[str, str], folder: Path, cluster: Cluster, console: Console) -> SubmitPlan:
    from kedge.ops.jobs.submit import plan_submit

    waits = tuple(replace(each, job=names.get(each.job, each.job)) for each in job.dependencies)
    return plan_submit(replace(job, dependencies=waits), cluster, console.settings, console.environ, str(folder))


def _show(plans: list[SubmitPlan], console: Console) -> None:
    if console.json:
        told = [{"script": each.script, "submit": list(each.argv), "site": each.cluster.site.name} for each in plans]
        console.print_json(_one_or_all(told))
    for plan in plans:
        console.print(plan.script.rstrip("\n"))
        console.print(f"# submitted with: {shlex.join(plan.argv)}")


def _submit(plan: SubmitPlan, arguments: argparse.Namespace, console: Console) -> Submitted:
    from kedge.ops.jobs.submit import show_output, submit
    from kedge.posix.files import write_atomically

    if arguments.script == "-":
        console.print(plan.script.rstrip("\n"))
    elif arguments.script:
        write_atomically(Path(arguments.script), plan.script.encode(errors="surrogateescape"), mode=0o755)
    if plan.image.reference and plan.image.when != "now":
        why = f" ({plan.image.reason})" if plan.image.reason else ""
        console.progress.note(f"{plan.image.reference} is pulled inside the job{why}")
    done = submit(plan)
    record = done.record
    if not console.json and arguments.script != "-":
        console.print(record.id)
        console.progress.note(f"'{record.name}' is in the queue of {record.site}; its output: {show_output(record)}")
        named = f"{_repeat_site(plan, console)}{record.id}"
        console.progress.note(f"'kedge status {named}' says how it is, 'kedge logs -f {named}' shows its output")
    return done


def _repeat_site(plan: SubmitPlan, console: Console) -> str:
    """`--site NAME ` where the next command would otherwise be for another site: its jobs have the same numbers."""
    site = plan.cluster.site.name
    is_passing = console.settings.sources["site"].kind == "flag" or (console.settings.site or site) != site
    return f"--site {shlex.quote(site)} " if is_passing else ""


def _wait(submitted: list[Submitted], cluster: Cluster, console: Console) -> None:
    from kedge.ops.jobs.find_job import FoundJob
    from kedge.ops.jobs.wait import require_success, wait_for

    for done in submitted:
        job = FoundJob(done.record.id, done.record)
        statuses = wait_for(cluster, job)
        require_success(job, statuses, cluster.backend.explain)
        console.progress.note(f"{job.name} is done")
