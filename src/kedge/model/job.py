# SPDX-License-Identifier: BSD-3-Clause
"""A job as its user describes it: what to run, in which image, on how much of a cluster. No scheduler's words here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Parallel(StrEnum):
    """How the command is started on what the job was given."""

    SINGLE = "single"  # once, on the first node
    TASKS = "tasks"  # once per task, by the site's launcher, without MPI
    MPI = "mpi"  # once per task, as ranks of one MPI world
    TORCHRUN = "torchrun"  # one torchrun per node, one process per GPU


class DependencyKind(StrEnum):
    """When a job may begin, seen from one it waits for; the words are Slurm's, which PBS shares."""

    AFTER_OK = "afterok"
    AFTER_ANY = "afterany"
    AFTER_NOT_OK = "afternotok"
    AFTER = "after"  # has begun


@dataclass(frozen=True, slots=True)
class Dependency:
    """One job to wait for."""

    kind: DependencyKind
    job: str  # as the user says it: an id of the scheduler, or a job of kedge's; in what a backend sees, always an id
    record: str = ""  # the folder of its record, where kedge knows it: schedulers without `afterok` look there


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class JobArray:
    """The indices of an array of jobs, and how many may run at once."""

    ranges: tuple[IndexRange, ...]
    limit: int | None = None

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges)) + (f"%{self.limit}" if self.limit else "")

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def indices(self) -> list[int]:
        """Every index, in the order it was written."""
        return [index for each in self.ranges for index in range(each.first, each.last + 1, each.step)]


@dataclass(frozen=True, slots=True)
class Job:
    """One description; None and empty values mean that the user said nothing, and nothing is then asked for."""

    name: str = "kedge"
    # what runs
    image: str = ""  # a reference or file; empty: the command runs on the node itself
    command: tuple[str, ...] = ()  # empty: what the image is made for
    container_options: tuple[str, ...] = ()  # options of `kedge exec`, word by word
    binds: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    nv: bool | None = None  # None: when GPUs are asked for
    runtime: str = ""  # kedge, apptainer, singularity or pyxis; empty: the site's
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # lines of shell that run on the node before the command
    directory: str = ""  # where it runs; empty: where it was submitted
    parallel: Parallel = Parallel.SINGLE
    launcher: str = ""  # empty: the site's
    # on how much
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str = ""
    memory: int | None = None  # bytes per node
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    time: int | None = None  # seconds
    exclusive: bool = False
    # whose, where and when
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
    output: str = ""  # {name}, {id} and {index} stand for what they say; empty: {name}-{id}.out, in `directory`
    error: str = ""  # empty: with the output
    # staging
    pull: str = ""  # now, in-job; empty: as the site says
    broadcast: bool = False  # copy the image to a disk of every node first
    # what the description above cannot say
    directives: tuple[str, ...] = ()  # in the scheduler's own words; the same option replaces ours
    drop_directives: tuple[str, ...] = ()  # options of ours that are left out

    @property
    def wants_gpus(self) -> bool:
        """Whether any GPU is asked for."""
        return bool(self.gpus_per_node)

    @property
    def node_count(self) -> int:
        """The nodes it gets when nothing else decides."""
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
        """All tasks, from whatever was given."""
        if self.parallel is Parallel.TORCHRUN:
            return self.node_count
        return self.tasks or self.tasks_on_node * self.node_count
