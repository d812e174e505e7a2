# SPDX-License-Identifier: BSD-3-Clause
"""Commands that wait for an allocation and open a terminal in it: srun, salloc, and TACC's idev."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kedge.cluster.job import Job
from kedge.cluster.schedulers.shell_words import require_word
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.options import parse_directives
from kedge.cluster.schedulers.slurm.write_options import interactive_directives
from kedge.cluster.site import Site
from kedge.errors import RequestRefused

# A step of this kind holds no resources (20.11 and later), so that `srun` within it finds them all free;
# the shell keeps the counts of nodes and tasks of the whole job.
_INTERACTIVE_STEP = ("srun", "--interactive", "--preserve-env")


def interactive_argv(job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
    """The command; idev takes none to run, so there `command` is left out and has to be typed."""
    way = site.interactive or "srun"
    if way not in FACTS.interactive:
        raise RequestRefused(
            f"Slurm has no interactive command '{way}'",
            hint=f"the site's profile names one of: {', '.join(FACTS.interactive)}",
        )
    if way == "idev":
        return ["idev", *_idev_words(job, site)]
    options = [word for directive in interactive_directives(job, site) for word in directive.words]
    terminal = ["--pty"] if has_terminal else []
    # srun starts its command once for each task, and only the first would get the terminal
    if way == "salloc" or job.task_count > 1 or job.node_count > 1:
        return ["salloc", *options, *_INTERACTIVE_STEP, *terminal, *command]
    return ["srun", *options, *terminal, *command]


def _idev_words(job: Job, site: Site) -> Iterator[str]:
    if job.array is not None:
        raise RequestRefused("an array cannot run on a terminal", hint="leave --array out, or use 'kedge submit'")
    queue = job.queue or site.interactive_queue
    if queue:
        yield from ("-p", require_word(queue, "queue"))
    yield from ("-N", str(job.node_count), "-n", str(job.task_count))
    if job.time is not None:
        yield from ("-m", str(-(-job.time // 60)))
    account = job.account or site.account
    if account:
        yield from ("-A", require_word(account, "account"))
    if job.reservation:
        yield from ("-r", require_word(job.reservation, "reservation"))
    for line in job.directives:
        for directive in parse_directives(line):
            yield from directive.words
