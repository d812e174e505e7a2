# SPDX-License-Identifier: BSD-3-Clause
"""The words of a batch script that start a command on every task or node of a job: srun, ibrun, mpirun, mpiexec.

Fragments are shell, already quoted.
"""

from __future__ import annotations

import re
import shlex

from kedge.errors import RequestRefused
from kedge.model.job import LAUNCHERS, Job, Parallel
from kedge.model.site import Site
from kedge.schedulers.backend import Dialect

_SPECIAL = re.compile(r'([$`"\\])')
# Programs that start others: on the tasks of a job, as several processes, on other nodes, as ranks of MPI; `library`:
# its version is that of an MPI library
_PROGRAMS = {
    "srun": "tasks processes nodes",
    "ibrun": "tasks processes nodes",
    "mpirun": "tasks processes nodes ranks library",
    "mpiexec": "tasks processes nodes ranks library",
    "orterun": "tasks ranks library",
    "mpiexec.hydra": "library",
    "horovodrun": "processes ranks",
    "torchrun": "tasks processes",
    "torch.distributed": "processes",
    "deepspeed": "processes",
    "accelerate": "processes",
    **dict.fromkeys(("jsrun", "aprun", "prun", "blaunch"), "tasks"),
    "pbsdsh": "tasks nodes",
    **dict.fromkeys(("qrsh", "ssh", "clush", "pdsh"), "nodes"),
}
# which node a process is on when there is one per node, by what started it
_NODE_RANK = {
    "srun": "$SLURM_NODEID",
    "ibrun": "${MV2_COMM_WORLD_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}",
    "mpirun": "$OMPI_COMM_WORLD_RANK",
    "mpiexec": "$PMI_RANK",
}


def quote(text: str) -> str:
    """The text as one word: bare where it can be, in double quotes where it holds single ones, else in single ones."""
    if "'" not in text:
        return shlex.quote(text)
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'


def list_launchers(kind: str) -> tuple[str, ...]:
    """The programs of a kind: tasks, processes, nodes, ranks or library."""
    return tuple(name for name, kinds in _PROGRAMS.items() if kind in kinds.split())


def launch_words(job: Job, site: Site, dialect: Dialect, *, force: bool = False) -> list[str]:
    """What stands before the command; nothing for a job that runs it once, unless `force`."""
    is_single = job.parallel is Parallel.SINGLE or (job.parallel is Parallel.TORCHRUN and job.node_count == 1)
    if is_single and not force:
        return []
    launcher = _find_launcher(job, site, dialect)
    if launcher == "srun":
        return _srun_words(job, site, one=is_single)
    if launcher == "ibrun":
        return ["ibrun", *site.launcher_options]
    if launcher == "mpirun":
        return [*_mpirun_words(job, site, dialect, job.task_count, job.tasks_on_node), *_forward(job, site, "-x {}")]
    if launcher == "mpiexec":
        words = ["mpiexec", f"-n {job.task_count}", f"-ppn {job.tasks_on_node}", *site.launcher_options]
        return [*words, f"-genvlist {','.join(_exported(job, site))}"]
    return []


def node_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """What starts a command once on every node of the job."""
    if job.node_count == 1:
        return []
    launcher = _find_launcher(job, site, dialect)
    count = job.node_count
    if launcher == "srun":
        return ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
    if launcher == "ibrun":
        return [f"ibrun -n {count}"]
    if launcher == "mpirun":
        return _mpirun_words(job, site, dialect, count, 1)
    return ["mpiexec", f"-n {count}", "-ppn 1"]


def torchrun_words(job: Job, site: Site, dialect: Dialect) -> list[str]:
    """torchrun and the user's program; its own options are read by a shell on the node, where the ranks are known."""
    processes = job.gpus_per_node or 1
    program = [quote(word) for word in job.command]
    if job.node_count == 1:
        return ["torchrun", "--standalone", f"--nproc_per_node={processes}", *program]
    rank = _NODE_RANK[_find_launcher(job, site, dialect)]
    words = f'exec torchrun --nnodes={job.node_count} --nproc_per_node={processes} --node_rank="{rank}"'
    words += ' \\\n        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
    return ["sh", "-c", f"'{words}'", "torchrun", *program]


def _find_launcher(job: Job, site: Site, dialect: Dialect) -> str:
    launcher = job.launcher or site.launcher or dialect.launcher
    if launcher not in LAUNCHERS:
        raise RequestRefused(
            f"kedge does not know the launcher '{launcher}'", hint=f"it is one of: {', '.join(LAUNCHERS)}"
        )
    if launcher == "none" and job.node_count > 1:
        raise RequestRefused("without a launcher a command reaches the first node only", hint="give --nodes 1")
    return launcher


def _srun_words(job: Job, site: Site, *, one: bool) -> list[str]:
    words = ["srun"]
    if one:
        words += ["--nodes=1", "--ntasks=1"]
    if job.parallel is Parallel.MPI and site.mpi_type:
        words.append(f"--mpi={site.mpi_type}")
    if job.cpus_per_task:  # Slurm 22.05 to 23.02 forget it between sbatch and srun
        words.append('--cpus-per-task="$SLURM_CPUS_PER_TASK"')
    return [*words, *site.launcher_options]


def _mpirun_words(job: Job, site: Site, dialect: Dialect, count: int, per_node: int) -> list[str]:
    words = ["mpirun", f"-np {count}", f"--map-by ppr:{per_node}:node"]
    if job.node_count > 1 and dialect.host_file:
        words.append(f"-hostfile {dialect.host_file}")
    return [*words, *site.launcher_options]


def _exported(job: Job, site: Site) -> list[str]:
    names = ["KEDGE_JOB_ID", "KEDGE_JOB_NAME", *(["KEDGE_ARRAY_INDEX"] if job.array else [])]
    names += [name for name, _ in (*site.environment, *job.environment)]
    if job.parallel is Parallel.TORCHRUN and job.node_count > 1:
        names += ["MASTER_ADDR", "MASTER_PORT"]
    return list(dict.fromkeys(names))


def _forward(job: Job, site: Site, pattern: str) -> list[str]:
    return [pattern.format(name) for name in _exported(job, site)]
