# SPDX-License-Identifier: BSD-3-Clause
"""A job as its user describes it, in no scheduler's words: command, image, resources."""

from __future__ import annotations

import re
from enum import StrEnum

from kedge.base.frozen import frozen
from kedge.errors import InvalidJob

# what a job can name; a site's profile names the usual one
LAUNCHERS = ("srun", "ibrun", "mpirun", "mpiexec", "qrsh", "local", "none")
# what `contract` can be: kedge.launch.contracts has what each means
CONTRACTS = ("ranks", "torchrun", "elastic", "multiproc", "lightning", "horovod", "jax", "deepspeed", "tensorflow")
RUNTIMES = ("kedge", "apptainer", "singularity", "pyxis")
MOST_INDICES = 1_000_000
NOW = "now"  # when an image is pulled: at submission, not in the job
_ARRAY_FORMATS = "write it like 0-9, 1-100%10 (ten at once), 0-20:5 or 1,3,7-9"
_RANGE = r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?"


class Parallel(StrEnum):
    """How the command is started on the allocated nodes."""

    SINGLE = "single"  # once, on the first node
    TASKS = "tasks"  # once per task, by the site's launcher, without MPI
    MPI = "mpi"  # once per task, as ranks of one MPI world
    RANKS = "ranks"  # once per task, with RANK, WORLD_SIZE, LOCAL_RANK … set
    TORCHRUN = "torchrun"  # one torchrun per node, one process per GPU


class DependencyKind(StrEnum):
    """When a job may start, seen from one it depends on; the words are those of Slurm and PBS."""

    AFTER_OK = "afterok"
    AFTER_ANY = "afterany"
    AFTER_NOT_OK = "afternotok"
    AFTER = "after"  # has started


@frozen
class Dependency:
    """One job that another depends on."""

    kind: DependencyKind
    job: str  # as the user names it: an id, or a job of kedge; backends always get the id
    record: str = ""  # the directory of its record, for schedulers without `afterok`; empty: unknown

    def __str__(self) -> str:
        return self.job if self.kind is DependencyKind.AFTER_OK else f"{self.kind}:{self.job}"


@frozen
class IndexRange:
    """`first-last:step`, both ends included."""

    first: int
    last: int
    step: int = 1

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}-{self.last}" + (f":{self.step}" if self.step != 1 else "")

    def __len__(self) -> int:
        return (self.last - self.first) // self.step + 1


@frozen
class JobArray:
    """The indices of an array of jobs, and how many may run at once."""

    ranges: tuple[IndexRange, ...]
    limit: int | None = None

    @classmethod
    def parse(cls, text: str) -> JobArray:
        """`0-9%2`, `1,3,5-9:2`; raises InvalidJob if it is no array, repeats an index, or is too large."""
        listed, percent, limit = "".join(text.split()).partition("%")
        if percent and not re.fullmatch(r"0*[1-9][0-9]{0,8}", limit):
            raise InvalidJob(f"'%{limit}' is not a number of tasks to run at once", hint=_ARRAY_FORMATS)
        array = cls(tuple(map(_parse_range, listed.split(","))), int(limit) if percent else None)
        if len(array) > MOST_INDICES:
            raise InvalidJob(
                f"'{text[:60]}' has {len(array)} indices; the maximum is {MOST_INDICES}",
                hint="let each task process several items in a loop",
            )
        if len(array.ranges) > 1 and len(set(array.indices)) < len(array):
            raise InvalidJob(f"'{text[:60]}' repeats an index", hint=_ARRAY_FORMATS)
        return array

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges)) + (f"%{self.limit}" if self.limit else "")

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def indices(self) -> list[int]:
        """Every index, in the order it was written."""
        return [index for span in self.ranges for index in range(span.first, span.last + 1, span.step)]


@frozen
class Job:
    """One job; None and empty values mean that the user did not say, and kedge then requests nothing."""

    name: str = "kedge"
    # command and container
    image: str = ""  # a reference or file; empty: the command runs on the node itself
    command: tuple[str, ...] = ()  # empty: the image's default command
    runscript: bool = False  # pass the command to the image's runscript or entry point, as `kedge run` does
    container_options: tuple[str, ...] = ()  # options of `kedge exec`, word by word
    binds: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    nv: bool | None = None  # None: if GPUs are requested
    force: bool = False  # also if the image is known not to run on the GPUs of the queue
    runtime: str = ""  # kedge, apptainer, singularity or pyxis; empty: the site's
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # shell lines that run on the node before the command
    directory: str = ""  # working directory; empty: where it was submitted
    parallel: Parallel = Parallel.SINGLE
    contract: str = ""  # what the program expects of its launcher: lightning, horovod, jax …; empty: as `parallel` says
    launcher: str = ""  # empty: the site's
    # resources
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    processes: int | None = None  # of torchrun, per node; None: one per GPU
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str = ""
    memory: int | None = None  # bytes per node
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    time: int | None = None  # seconds
    exclusive: bool = False
    # account, queue and schedule
    account: str = ""
    queue: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    array: JobArray | None = None
    dependencies: tuple[Dependency, ...] = ()
    begin: str = ""  # as the scheduler writes times
    mail: str = ""  # address; empty: no mail
    mail_on: tuple[str, ...] = ()  # of: begin, end, fail
    # files
    output: str = ""  # with {name}, {id}, {index}; empty: {name}-{id}.out in `directory`
    error: str = ""  # empty: same file as the output
    # staging
    pull: str = ""  # now, in-job; empty: as the site says
    build: str = ""  # a recipe: the job builds its image, if the file is missing
    broadcast: bool = False  # copy the image to a local disk of every node first
    stage: str = ""  # auto, always, never: copy kedge and the image to every node; empty: auto
    # directives
    directives: tuple[str, ...] = ()  # in the scheduler's own words; they replace kedge's of the same name
    drop_directives: tuple[str, ...] = ()  # names of kedge's directives to leave out

    @property
    def wants_gpus(self) -> bool:
        """Whether the job requests GPUs."""
        return bool(self.gpus_per_node)

    @property
    def uses_gpus(self) -> bool:
        """Whether its container sees NVIDIA GPUs."""
        return self.wants_gpus if self.nv is None else self.nv

    @property
    def node_count(self) -> int:
        """The number of nodes, from whatever was given."""
        if not self.nodes and self.tasks and self.tasks_per_node:
            return -(-self.tasks // self.tasks_per_node)
        return self.nodes or 1

    @property
    def tasks_on_node(self) -> int:
        """Tasks per node, from whatever was given."""
        if self.tasks_per_node:
            return self.tasks_per_node
        if self.parallel is Parallel.TORCHRUN or not self.tasks:
            return 1
        return -(-self.tasks // self.node_count)

    @property
    def task_count(self) -> int:
        """Return the number of all tasks, from whatever was given."""
        if self.parallel is Parallel.TORCHRUN:
            return self.node_count
        return self.tasks or self.tasks_on_node * self.node_count


def _parse_range(text: str) -> IndexRange:
    match = re.fullmatch(_RANGE, text)
    if match is None:
        raise InvalidJob(f"'{text[:60]}' is neither an index nor a range", hint=_ARRAY_FORMATS)
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first:
        raise InvalidJob(f"'{text}' counts down", hint=f"write {last}-{first}")
    if step < 1:
        raise InvalidJob(f"'{text}' has a step of 0", hint=_ARRAY_FORMATS)
    return IndexRange(first, last, step)


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """`JOB`, which means `afterok:JOB`, or Slurm's `KIND:JOB[:JOB...][,KIND:JOB...]`.

    A JOB is an id or a name; a name with a colon or comma cannot be used here.
    """
    if not text.startswith(tuple(f"{kind}:" for kind in DependencyKind)):
        return (Dependency(DependencyKind.AFTER_OK, _check_job_name(text, text)),)
    dependencies: list[Dependency] = []
    for piece in text.split(","):
        kind, _, jobs = piece.strip().partition(":")
        if kind not in list(DependencyKind):
            raise _refuse_dependency(text)
        dependencies += [Dependency(DependencyKind(kind), _check_job_name(job, text)) for job in jobs.split(":")]
    return tuple(dependencies)


def _check_job_name(job: str, text: str) -> str:
    if not job.strip() or re.search(r"[,:\x00-\x1f\x7f]", job):
        raise _refuse_dependency(text)
    return job.strip()


def _refuse_dependency(text: str) -> InvalidJob:
    kinds = ", ".join(f"{kind}:JOB" for kind in DependencyKind)
    return InvalidJob(
        f"'{text[:100]}' is not a job to wait for",
        hint=f"give a job's id or name, or one of {kinds}; repeat the option for several jobs",
    )


@frozen
class StagedImage:
    """The image of a job: the path in its script, and the reference to pull there."""

    path: str  # as compute nodes see it; a reference where another runtime fetches images itself
    reference: str = ""  # what to pull to `path`; empty: it is there
    when: str = ""  # now or in-job
    reason: str = ""  # why in the job
    recipe: str = ""  # what to build `path` from, in the job
