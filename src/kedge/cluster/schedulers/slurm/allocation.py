# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a job of Slurm, from the variables of its batch step, of a task, or of salloc on a login node.

Within a task the counts of tasks are those of the step, which may be on fewer nodes than the job; of GPUs only the
node's own are told, unless the request was for each node or task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kedge.cluster.allocation import AllocatedNode, Allocation, ThisHost
from kedge.cluster.hosts import parse_counts, parse_hosts
from kedge.errors import LaunchRefused

_MASKS = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURMD_TRES_BIND")
_NO_MASKS = ("none", "closest", "gpu:none", "gpu:closest", "gres/gpu:none", "gres/gpu:closest")


def read_allocation(environ: Mapping[str, str], read: Callable[[str], str], host: ThisHost) -> Allocation:
    """Return the job's nodes with their tasks, CPUs and GPUs."""
    del read
    names = _read_names(environ)
    step = environ.get("SLURM_STEP_ID", "")
    cpus = _read_counts(environ, "SLURM_JOB_CPUS_PER_NODE", len(names)) or (0,) * len(names)
    per_task = _last_number(environ.get("SLURM_CPUS_PER_TASK", "")) or 0
    tasks = _read_tasks(environ, cpus, per_task)
    here = _find_here(environ, names, host)
    gpus, notes = _count_gpus(environ, names, tasks, here, host)
    if (_last_number(environ.get("SLURM_HET_SIZE", "")) or 0) > 1:
        notes = (*notes, "the job is heterogeneous: kedge uses the nodes of its first component")
    nodes = zip(names, tasks, cpus, gpus, strict=True)
    return Allocation(
        "slurm",
        tuple(AllocatedNode(name, count, cpu, gpu) for name, count, cpu, gpu in nodes),
        job_id=environ.get("SLURM_JOB_ID", ""),
        array_index=environ.get("SLURM_ARRAY_TASK_ID", ""),
        here=here,
        step_id=step,
        step_tasks=(_last_number(environ.get("SLURM_STEP_NUM_TASKS", "")) or 0) if step else 0,
        cpus_per_task=per_task,
        masks_gpus=any(environ.get(name, "none") not in _NO_MASKS for name in _MASKS),
        notes=notes,
    )


def _read_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    names = parse_hosts(environ.get("SLURM_JOB_NODELIST", ""), "SLURM_JOB_NODELIST")
    told = environ.get("SLURM_JOB_NUM_NODES", "")
    if told and told != str(len(names)):
        raise LaunchRefused(
            f"SLURM_JOB_NODELIST names {len(names)} nodes, and SLURM_JOB_NUM_NODES says {told[:20]}",
            hint="one of them was changed in this shell: run kedge launch in a job whose variables are untouched",
        )
    return names


def _read_counts(environ: Mapping[str, str], name: str, wanted: int) -> tuple[int, ...]:
    """A number for each node; nothing where it is not set or is for other nodes."""
    counts = parse_counts(environ[name], name) if environ.get(name) else ()
    return counts if len(counts) == wanted else ()


def _read_tasks(environ: Mapping[str, str], cpus: tuple[int, ...], per_task: int) -> tuple[int, ...]:
    """Tasks of the job. A step on some of the nodes hides them: then as many as Slurm would start on the CPUs."""
    is_partial = environ.get("SLURM_STEP_ID") and environ.get("SLURM_STEP_NUM_TASKS") == "1"  # srun --pty bash
    tasks = () if is_partial else _read_counts(environ, "SLURM_TASKS_PER_NODE", len(cpus))
    return tasks or tuple(max(1, count // (per_task or 1)) for count in cpus)


def _find_here(environ: Mapping[str, str], names: tuple[str, ...], host: ThisHost) -> str:
    """Hydra hands on the first node's SLURMD_NODENAME: the machine's own name goes first."""
    short = {name.partition(".")[0]: name for name in names}
    told = environ.get("SLURMD_NODENAME", "")
    return short.get(host.name.partition(".")[0]) or (told if told in names else "")


def _count_gpus(
    environ: Mapping[str, str], names: tuple[str, ...], tasks: tuple[int, ...], here: str, host: ThisHost
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """The GPUs of each node, and what is to be said about them."""
    on_node = _last_number(environ.get("SLURM_GPUS_ON_NODE", "")) if here else None
    per_node = _last_number(environ.get("SLURM_GPUS_PER_NODE", ""))
    per_task = _last_number(environ.get("SLURM_GPUS_PER_TASK", ""))
    total = _last_number(environ.get("SLURM_GPUS", ""))
    if per_node is not None:
        return (per_node,) * len(names), ()
    if per_task is not None:
        return tuple(per_task * count for count in tasks), ()
    if total is not None and len(names) > 1:
        rest = total - (on_node or 0) if on_node is not None and len(names) == 2 else None
        note = "--gpus spreads GPUs unevenly over nodes: use --gpus-per-node for programs on several nodes"
        return tuple(on_node if name == here else rest for name in names), (note,)
    if on_node is not None or total is not None:  # --gres, --exclusive: the same on each
        return (on_node if on_node is not None else total,) * len(names), ()
    return (host.gpus if here else None,) * len(names), ()


def _last_number(text: str) -> int | None:
    """2 of `2` and of `a100:2`."""
    word = text.rpartition(":")[2]
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 8 else None
