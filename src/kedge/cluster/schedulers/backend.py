# SPDX-License-Identifier: BSD-3-Clause
"""What every scheduler's module offers: text in, text out. Nothing here or below starts a program or opens a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kedge.base.frozen import frozen
from kedge.cluster.job import Job
from kedge.cluster.job_state import JobStatus
from kedge.cluster.site import Site

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Protocol

    from kedge.cluster.allocation import Allocation, ThisHost
    from kedge.cluster.job_state import JobUsage

    # variables of the job, what reads a file, and what the machine knows of itself
    ReadAllocation = Callable[[Mapping[str, str], Callable[[str], str], ThisHost], Allocation]
else:
    Protocol = object


@frozen
class ScriptContext:
    """What a script needs to know and the description does not say; paths are as compute nodes see them."""

    record: (
        str  # the directory of the job's record: the script leaves there how it began and ended; empty: there is none
    )
    kedge: str  # the command, as a path
    image: str  # the image to start: a file, or a reference
    pull_from: str  # a reference to pull to `image` inside the job first; empty: it is there
    directory: str  # where the job runs: absolute
    output: str  # pattern for the scheduler, absolute: {name}, {id} and {index} still in it
    error: str  # likewise; empty: with the output
    inside_only: tuple[str, ...] = ()  # variables that would change programs of the node: the container alone gets them
    build_from: str = ""  # a recipe to build `image` from inside the job first, if it is missing
    stages_kedge: bool = False  # copy `kedge`, which is one file, to every node first
    stages_image: bool = False  # likewise the image
    torch_launcher: tuple[str, ...] = ("torchrun",)  # words that start the processes of a node, as the image has them
    source: str = ""  # the reference that `image` is, with its digest, where it came from a registry


@frozen
class Dialect:
    """Where the bodies of two schedulers' scripts differ. Expressions are the shell's and go between double quotes."""

    submit_word: str  # what to type, before the script's name, to submit it by hand
    job_id: str  # ${SLURM_JOB_ID}
    array_index: str  # the name of the variable: SLURM_ARRAY_TASK_ID
    first_node: tuple[str, ...]  # lines that set first_node
    launcher: str  # where the site names none
    host_file: str = ""  # what mpirun needs to find the nodes, where it does not ask the scheduler itself
    has_array_lists: bool = True  # 1,3,7-9 and not only one range
    first_index: int = 0  # the smallest index there is
    has_dependency_kinds: bool = True  # False: it begins after any end, and the script looks how that was
    broadcast: str = ""  # the words that copy a file to all nodes, where no such file may be: sbcast
    node_shell: tuple[str, ...] = ()  # by which program mpirun is to reach nodes, and the variable with their list
    signal_carrier: str = ""  # the signal on which the script sends its command the one that its record names
    opening: tuple[str, ...] = ()  # lines before all that can print: where output goes that the scheduler would keep


@frozen
class Query:
    """A call of a scheduler's program, and whether its failure means that nothing is known instead of an error."""

    argv: tuple[str, ...]
    may_fail: bool = False
    environment: tuple[tuple[str, str | None], ...] = ()  # variables to set for it, or with None to take away


class Ask(Protocol):
    """Runs a program of the scheduler and gives what it prints; nothing where it fails and may."""

    def __call__(self, argv: Sequence[str], *, may_fail: bool = False) -> str:
        """Run a scheduler's program and return its standard output."""
        ...


Discover = Callable[[str, str, Ask], Site]  # the name of the site and of the user, and whom to ask


class UsageReader(Protocol):
    """The `usage` module of a scheduler's package: what jobs used, from its accounts."""

    def usage_query(self, ids: Sequence[str], since: float) -> Query:
        """Return one call to the accounts."""
        ...

    def parse_usage(self, output: str) -> dict[str, JobUsage]:
        """Parse what the accounts printed, by `JobStatus.shown_id`."""
        ...


class Backend(Protocol):
    """One scheduler. All methods are pure; a text that cannot be read raises SchedulerFailed and quotes it."""

    name: str  # slurm, gridengine, pbs, local

    def render(self, job: Job, site: Site, place: ScriptContext) -> str:
        """The whole batch script; raises RequestRefused for what this scheduler has no words for."""
        ...

    def submit_argv(self, script: str, job: Job, site: Site) -> list[str]:
        """The command that submits the script and prints the id."""
        ...

    def parse_submit(self, output: str) -> str:
        """The id in what the submit command printed; raises SchedulerFailed when there is none."""
        ...

    def interactive_argv(self, job: Job, site: Site, command: Sequence[str], *, has_terminal: bool = True) -> list[str]:
        """The command that waits for an allocation like the job's and runs `command` there, on a terminal if any."""
        ...

    def list_query(self, user: str) -> Query:
        """Return one call that tells of every job of the user that the scheduler still knows."""
        ...

    def parse_list(self, output: str) -> list[JobStatus]:
        """What `list_query` printed."""
        ...

    def detail_query(self, id: str) -> Query | None:
        """Return one call that says more about one job, such as why it waits; None where the list says all."""
        ...

    def parse_detail(self, output: str) -> list[JobStatus]:
        """What `detail_query` printed; empty when it says that there is no such job."""
        ...

    def history_query(self, ids: Sequence[str], since: float) -> Query | None:
        """Return one call to the accounts, for jobs the list no longer has; None where there are none."""
        ...

    def parse_history(self, output: str) -> list[JobStatus]:
        """What `history_query` printed."""
        ...

    def cancel_argv(self, ids: Sequence[str], signal: str = "") -> list[str]:
        """The command that ends jobs (`12`, `12_3`), or sends them a signal."""
        ...

    def explain(self, status: JobStatus) -> str:
        """Why it waits or how it failed, in a sentence for people, with the remedy where there is one; may be empty."""
        ...

    def is_stuck(self, status: JobStatus) -> bool:
        """Whether a job waits in vain: it never begins unless somebody changes something. A user's hold is not that."""
        ...
