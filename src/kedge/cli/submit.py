# SPDX-License-Identifier: BSD-3-Clause
"""`kedge submit`: submits a job, described by flags or kedge.toml, to the scheduler of the site."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kedge.base.frozen import frozen, replace
from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_dry_run, add_settings
from kedge.errors import UsageError

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.cluster.job import Job
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.submit import SubmitPlan, Submitted


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of jobs, and the file to read them from."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[IMAGE [COMMAND [ARGUMENT ...]]]",
        help="image and command to run (default: as in kedge.toml); '-' as IMAGE runs the command without a container",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="read the jobs from FILE (default: kedge.toml)")
    parser.add_argument("-j", "--job", action="append", metavar="NAME", help="submit this job of the file; repeatable")
    parser.add_argument("--all", action="store_true", help="submit all jobs of the file")
    parser.add_argument("--script", metavar="FILE", help="also write the script to FILE; '-' prints it")
    parser.add_argument(
        "--wait", action="store_true", help="wait until the jobs have ended; exit code 0 if all completed"
    )
    add_job_options(parser)
    add_settings(parser, "site", "job_directory", "pull_directory")
    add_dry_run(parser)


@frozen
class _JobSet:
    """The jobs to submit; each comes after the jobs it depends on."""

    jobs: tuple[tuple[str, Job], ...]  # each with the name that other jobs of the file use in `after`
    folder: Path  # relative paths begin here
    site: str = ""  # from the file; flags and the environment override it
    others: tuple[tuple[str, str], ...] = ()  # the other jobs of the file: their keys and names


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Submit one job or several."""
    from kedge.jobs.cluster import open_cluster

    asked = _read_jobs(arguments)
    if arguments.script and arguments.script != "-":
        _check_script(Path(arguments.script), asked, console)
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
        # a job that depends on another of these needs the id which that one got
        waits = any(dependency.job in submitted for dependency in job.dependencies)
        ids = {**dict(asked.others), **{other: done.record.id for other, done in submitted.items()}}
        pinned = replace(job, image=first.job.image)  # the tag was looked up already
        plan = _make_plan(pinned, ids, asked.folder, cluster, console) if waits else first
        submitted[name] = _submit(plan, arguments, console)
    if is_first:
        _propose_profile(console)
    if arguments.wait:
        _wait(list(submitted.values()), cluster, console)
    if console.json:
        console.print_json(_unwrap_single([done.as_dict() for done in submitted.values()]))
    return 0


def _propose_profile(console: Console) -> None:
    """Say once, with the first job, how to get a profile of this cluster."""
    console.progress.note(
        "This cluster has no profile, so kedge cannot check requests against its limits. Write one: kedge site init"
    )


def _plan_all(asked: _JobSet, cluster: Cluster, console: Console) -> list[SubmitPlan]:
    """Plan all jobs before the first is submitted: if one is refused, none is in the queue."""
    ids = {**dict(asked.others), **{name: "0" for name, _ in asked.jobs}}
    return [_make_plan(job, ids, asked.folder, cluster, console) for _, job in asked.jobs]


def _unwrap_single(values: Sequence[object]) -> object:
    return values[0] if len(values) == 1 else values


def _read_jobs(arguments: argparse.Namespace) -> _JobSet:
    """The jobs that the words, the flags and the file describe."""
    from kedge.cluster.job import Job

    words = arguments.words[1:] if arguments.words[:1] == ["--"] else list(arguments.words)
    if arguments.file or arguments.job or arguments.all or not words:
        return _read_file(arguments, words)
    image = "" if words[0] == "-" else words[0]
    if not image and not words[1:]:
        raise UsageError("the command is missing", hint="to run one without a container: kedge submit - COMMAND")
    _refuse_misread(image)
    _refuse_late_options(arguments, words)
    base = Job(image=image, command=tuple(words[1:]), name=_name_after(words))
    return _JobSet((("", read_job_options(arguments, base)),), Path.cwd())


def _refuse_misread(image: str) -> None:
    """Refuse the value of another tool's option in the place of the image, as `exec` does: `-v /data:/data`."""
    if "=" in image or ":/" in image:
        from kedge.container.misplaced_words import explain_misread  # late: few images look so

        misread = explain_misread(image, (), sys.argv)
        if misread is not None:
            raise misread


def _refuse_late_options(arguments: argparse.Namespace, words: list[str]) -> None:
    """Refuse options after the image, which would be taken for the command; give the corrected line."""
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
                f"'{late[0]}' is in the place of the command: options must come before the image", hint=problem.hint
            ) from None
        options = late[: len(late) - len(rest)]
    typed = sys.argv[1 : -len(words)] if sys.argv[-len(words) :] == words else ["submit"]
    before = [word for word in typed if word != "--"]
    raise UsageError(
        f"'{late[0]}' is in the place of the command: options must come before the image",
        hint=f"type: {shlex.join(['kedge', *before, *options, words[0], *rest])}",
    )


def _read_file(arguments: argparse.Namespace, words: list[str]) -> _JobSet:
    from kedge.jobs.description import find_description, read_description

    description = read_description(Path(arguments.file).absolute() if arguments.file else find_description(Path.cwd()))
    names = list(arguments.job or (description.names if arguments.all or len(description.names) == 1 else ()))
    if not names:
        raise UsageError(
            f"{description.path} describes several jobs: {', '.join(description.names)}",
            hint=f"choose one: kedge submit -j {shlex.quote(description.names[0])}; or submit all: kedge submit --all",
        )
    if words and len(names) > 1:
        raise UsageError("extra arguments for the command need a single job", hint="choose one: -j NAME")
    # a dependency that is not chosen was submitted before
    chosen = [name for name in description.order(names) if name in names]
    described = [(name, description.job(name)) for name in chosen]
    jobs = [(name, replace(job, command=(*job.command, *words))) for name, job in described]
    ready = tuple((name, read_job_options(arguments, job)) for name, job in jobs)
    others = tuple((name, job.name) for name, job in description.jobs.items() if name not in chosen)
    return _JobSet(ready, description.folder, description.site, others)


def _name_after(words: list[str]) -> str:
    """The default name of a job: its program, else its image."""
    return Path(words[1] if len(words) > 1 else words[0].rpartition("/")[2].partition(":")[0]).name or "kedge"


def _check_script(path: Path, asked: _JobSet, console: Console) -> None:
    """Refuse several jobs, and a script that is not kedge's: `--script` names the one to write."""
    from kedge.system.files import refuse_others

    if len(asked.jobs) > 1:
        raise UsageError("--script takes one job, and several would be submitted", hint="choose one: -j NAME")
    if not console.dry_run:
        refuse_others(path, rb"(?m)^# .*: by kedge ")


def _make_plan(job: Job, names: dict[str, str], folder: Path, cluster: Cluster, console: Console) -> SubmitPlan:
    from kedge.jobs.submit import plan_submit

    waits = tuple(replace(awaited, job=names.get(awaited.job, awaited.job)) for awaited in job.dependencies)
    return plan_submit(replace(job, dependencies=waits), cluster, console.settings, console.environ, str(folder))


def _show(plans: list[SubmitPlan], console: Console) -> None:
    if console.json:
        shown = [{"script": plan.script, "submit": list(plan.argv), "site": plan.cluster.site.name} for plan in plans]
        console.print_json(_unwrap_single(shown))
    for plan in plans:
        console.print(plan.script.rstrip("\n"))
        console.print(f"# submitted with: {shlex.join(plan.argv)}")


def _submit(plan: SubmitPlan, arguments: argparse.Namespace, console: Console) -> Submitted:
    from kedge.jobs.submit import fetch_image, submit
    from kedge.jobs.submitted_ids import show_output
    from kedge.system.files import write_atomically

    is_pulled_later = plan.image.reference and plan.image.when != "now"
    plan = fetch_image(plan)
    for note in plan.notes:
        console.progress.note(note)
    if arguments.script == "-":
        console.print(plan.script.rstrip("\n"))
    elif arguments.script:
        write_atomically(Path(arguments.script), plan.script.encode(errors="surrogateescape"), mode=0o755)
    if is_pulled_later:
        why = f" ({plan.image.reason})" if plan.image.reason else ""
        console.progress.note(f"The job will pull {plan.image.reference}{why}")
    done = submit(plan)
    record = done.record
    if not console.json and arguments.script != "-":
        console.print(record.id)
        follow = f"kedge logs -f {_repeat_site(plan, console)}{record.id}"
        console.progress.note(f"Submitted job {record.id} ({record.name}) to {record.site}. Follow it: {follow}")
        console.progress.note(f"Output: {show_output(record)}")
    return done


def _repeat_site(plan: SubmitPlan, console: Console) -> str:
    """`--site NAME ` where the next command would otherwise ask another site, whose jobs have the same numbers."""
    site = plan.cluster.site.name
    is_passing = console.settings.sources["site"].kind == "flag" or (console.settings.site or site) != site
    return f"--site {shlex.quote(site)} " if is_passing else ""


def _wait(submitted: list[Submitted], cluster: Cluster, console: Console) -> None:
    from kedge.jobs.find_job import FoundJob
    from kedge.jobs.wait import require_success, wait_for

    for done in submitted:
        job = FoundJob(done.record.id, done.record)
        statuses = wait_for(cluster, job)
        require_success(job, statuses, cluster.backend.explain)
        console.progress.note(f"Job {job.name} completed")
