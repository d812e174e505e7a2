# SPDX-License-Identifier: BSD-3-Clause
"""The words of a batch script that start a command on every task or node of a job.

With kedge's own runtime that is one line, `kedge launch`: the numbers come from the allocation. Other runtimes stand
behind the launcher's own words (`launch/programs`). Fragments are shell, already quoted.
"""

from __future__ import annotations

from kedge.cluster.job import LAUNCHERS, Job, Parallel
from kedge.cluster.schedulers.backend import Dialect
from kedge.cluster.schedulers.shell_words import quote
from kedge.cluster.site import Site
from kedge.errors import RequestRefused

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.cluster.launchers.program import StartRequest

# which node a process is on when there is one per node, by what started it
_NODE_RANK = {
    "srun": "$SLURM_NODEID",
    "ibrun": "${MV2_COMM_WORLD_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}",
    "mpirun": "$OMPI_COMM_WORLD_RANK",
    "mpiexec": "$PMI_RANK",
}
_WAYS = {
    Parallel.MPI: "--mpi",
    Parallel.TASKS: "--each-task",
    Parallel.RANKS: "--ranks",
    Parallel.TORCHRUN: "--torchrun",
}
_STANDALONE = ("torchrun", "torch.distributed.run")  # they know --standalone
_OWN = ("qrsh", "local")  # kedge itself starts the tasks


def uses_launch(job: Job, runtime: str) -> bool:
    """Whether the script starts the command by `kedge launch`."""
    is_spread = job.parallel is not Parallel.SINGLE or bool(job.contract)
    return is_spread and bool(job.image) and runtime == "kedge" and job.launcher != "none"


def kedge_launch_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """`launch` and its options, up to those of the container."""
    words = ["launch", f"--site {quote(site.name)}"]
    words += [f"--launcher {job.launcher}"] if job.launcher else []
    words += [f"--contract {job.contract}"] if job.contract else [_WAYS[job.parallel]]
    knows_tasks = dialect.launcher == "srun"
    if job.parallel is Parallel.TORCHRUN:
        is_told = knows_tasks and site.gpu_directive != ""
        processes = job.processes or (None if is_told else job.gpus_per_node)
        words += [f"--processes {processes}"] if processes else []
    elif not knows_tasks:  # slots are CPUs, too
        words += [f"--tasks {job.tasks}"] if job.tasks else [f"--tasks-per-node {job.tasks_on_node}"]
    return words


def launch_words(job: Job, site: Site, dialect: Dialect, *, force: bool = False) -> list[str]:
    """What stands before the command; nothing for a job that runs it once, unless `force`."""
    is_single = job.parallel is Parallel.SINGLE or (job.parallel is Parallel.TORCHRUN and job.node_count == 1)
    if is_single and not force:
        return []
    launcher = _find_launcher(job, site, dialect)
    if launcher == "none":
        return []
    from kedge.cluster.launchers.program import (  # late: most scripts have `kedge launch` instead
        ShellText,
        StartRequest,
    )

    request = StartRequest(
        1 if is_single else job.task_count,
        1 if is_single else job.node_count,
        1 if is_single else job.tasks_on_node,
        mpi_type=site.mpi_type if job.parallel is Parallel.MPI else "",
        cpus_per_task=ShellText('"$SLURM_CPUS_PER_TASK"') if job.cpus_per_task and launcher == "srun" else "",
        host_file=_host_file(job, dialect, launcher),
        variables=tuple(_exported(job, site)),
        options=tuple(ShellText(option) for option in site.launcher_options),
        is_counted=is_single,
    )
    return _quote_words(launcher, request)


def node_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """What starts a command once on every node of the job."""
    if job.node_count == 1:
        return []
    launcher = _find_launcher(job, site, dialect)
    options = site.launcher_options if launcher == "mpirun" else ()
    from kedge.cluster.launchers.program import ShellText, StartRequest  # late: as above

    request = StartRequest(
        job.node_count,
        job.node_count,
        1,
        host_file=_host_file(job, dialect, launcher),
        options=tuple(ShellText(option) for option in options),
    )
    return _quote_words(launcher, request)


def _quote_words(launcher: str, request: StartRequest) -> list[str]:
    """Return the words of a launcher as fragments of shell: a line may be broken between two of them."""
    from kedge.cluster.launchers.known import PROGRAMS  # late: as above
    from kedge.cluster.launchers.program import ShellText

    groups = PROGRAMS[launcher].list_words(request)
    return [" ".join(word if isinstance(word, ShellText) else quote(word) for word in group) for group in groups]


def needs_master(job: Job, starter: Sequence[str]) -> bool:
    """Whether torchrun, or what an older PyTorch has instead, must be told where processes meet."""
    return job.node_count > 1 or not starter[-1].endswith(_STANDALONE)


def torchrun_words(job: Job, site: Site, dialect: Dialect, starter: Sequence[str]) -> list[str]:
    """torchrun and the user's program; its own options are read by a shell on the node, where the ranks are known."""
    processes = job.processes or job.gpus_per_node or 1
    program = [quote(word) for word in job.command]
    first = [quote(word) for word in starter]
    if not needs_master(job, starter):
        return [*first, "--standalone", f"--nproc_per_node={processes}", *program]
    if job.node_count == 1:
        where = ["--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", '--master_port="$MASTER_PORT"']
        return [*first, *where, f"--nproc_per_node={processes}", *program]
    rank = _NODE_RANK[_find_launcher(job, site, dialect)]
    words = f'exec {" ".join(starter)} --nnodes={job.node_count} --nproc_per_node={processes} --node_rank="{rank}"'
    words += ' \\\n        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
    return ["sh", "-c", f"'{words}'", "torchrun", *program]


def _find_launcher(job: Job, site: Site, dialect: Dialect) -> str:
    launcher = job.launcher or site.launcher or dialect.launcher
    if launcher not in LAUNCHERS:
        raise RequestRefused(
            f"kedge does not know the launcher '{launcher}'", hint=f"it is one of: {', '.join(LAUNCHERS)}"
        )
    if launcher in _OWN:
        raise RequestRefused(
            f"the launcher '{launcher}' starts containers of kedge's own runtime only",
            hint=f"give --runtime kedge and an image, or --launcher {dialect.launcher}",
        )
    if launcher == "none" and job.node_count > 1:
        raise RequestRefused("without a launcher a command reaches the first node only", hint="give --nodes 1")
    return launcher


def _host_file(job: Job, dialect: Dialect, launcher: str) -> str:
    """What mpirun needs to find the nodes, where it does not ask the scheduler itself."""
    if launcher != "mpirun" or job.node_count == 1 or not dialect.host_file:
        return ""
    from kedge.cluster.launchers.program import ShellText  # late: as above

    return ShellText(dialect.host_file)


def _exported(job: Job, site: Site) -> list[str]:
    names = ["KEDGE_JOB_ID", "KEDGE_JOB_NAME", *(["KEDGE_ARRAY_INDEX"] if job.array else [])]
    names += [name for name, _ in (*site.environment, *job.environment)]
    if job.parallel is Parallel.TORCHRUN and job.node_count > 1:
        names += ["MASTER_ADDR", "MASTER_PORT"]
    return list(dict.fromkeys(names))
