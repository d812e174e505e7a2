# SPDX-License-Identifier: BSD-3-Clause
"""The launcher before a container's command, as fields of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kedge.base.shell_text import Word
from kedge.cluster.job import Parallel
from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.script_request import Left, ScriptRequest
from kedge.cluster.schedulers.slurm.language import LANGUAGE, READERS
from kedge.jobs.scripts.script import ContainerCall
from kedge.jobs.scripts.variables import find_names, find_own_names, resolve_word

_SRUN_SIZES = {
    "--ntasks": "tasks",
    "--nodes": "nodes",
    "--ntasks-per-node": "tasks_per_node",
    "--cpus-per-task": "cpus_per_task",
    "--gpus-per-node": "gpus_per_node",
    "--gpus-per-task": "gpus_per_task",
    "--gpus": "gpus",
    "--gres": "gpus_per_node",
    "--mem": "memory",
    "--time": "time",
    "--partition": "queue",
    "--account": "account",
}
_MPIRUN_COUNTS = {
    "-np": "tasks",
    "-n": "tasks",
    "--np": "tasks",
    "-npernode": "tasks_per_node",
    "--npernode": "tasks_per_node",
    "-ppn": "tasks_per_node",
    "-N": "tasks_per_node",
}
_MPIRUN_ONE = """
-x -hostfile --hostfile -machinefile --machinefile -host --host -H -f -map-by --map-by -bind-to --bind-to
-rank-by --rank-by -wdir --wdir -env -genvlist -launcher -bootstrap -hosts --prefix -o
"""
_MPIRUN_TWO = ("-mca", "--mca", "-genv", "-gmca", "--gmca")
_TORCHRUN_OURS = """
nnodes nproc_per_node rdzv_id rdzv_backend rdzv_endpoint master_addr master_port node_rank standalone
rdzv_conf
"""


@dataclass(slots=True)
class Launch:
    """How the command is started, and what of that could not be kept."""

    parallel: Parallel = Parallel.SINGLE
    program: str = ""
    left: list[Left] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)


def read_launcher(call: ContainerCall, request: ScriptRequest, values: Mapping[str, str]) -> Launch | None:
    """Reads the words before the container's, and adds sizes they give to the request; None when they are too much."""
    words = _resolve(call, request, values)
    if words is None:
        return None
    if not words:
        return Launch()
    if words[0] == "srun":
        return _read_srun(call, words[1:], request)
    if words[0] in ("mpirun", "mpiexec", "orterun", "ibrun"):
        return _read_mpirun(call, words, request)
    return None


def _resolve(call: ContainerCall, request: ScriptRequest, values: Mapping[str, str]) -> list[str] | None:
    """The launcher's words; a variable of the scheduler's repeats what directives say, others must be certain."""
    words = []
    for word in call.launcher:
        known = resolve_word(word, values)
        if known is None and set(find_names(word.text)) - set(find_own_names(request.scheduler, word.text)):
            return None
        words.append(word.text if known is None else known)
    return words


def _read_srun(call: ContainerCall, words: Sequence[str], request: ScriptRequest) -> Launch | None:
    launch = Launch(Parallel.TASKS, "srun")
    for option in LANGUAGE.cut_all(words):
        shown = option.name if option.value is None else f"{option.name}={option.value}"
        if not option.name or not option.name.startswith("-"):
            return None
        if option.name == "--mpi":
            launch.parallel = Parallel.TASKS if option.value == "none" else Parallel.MPI
            launch.remarks.append((call.line, f"srun {shown} is decided by the site's profile (mpi_type)"))
        elif option.name in _SRUN_SIZES:
            _add_size(call, request, option.name, option.value or "", launch)
        else:
            launch.left.append(Left(call.line, "", f"the srun option: {shown}"))
    return launch


def _add_size(call: ContainerCall, request: ScriptRequest, name: str, value: str, launch: Launch) -> None:
    key = _SRUN_SIZES[name]
    if "$" in value:  # it repeats what the directives say: --ntasks=$SLURM_NTASKS
        return
    before = request.get(key)
    directive = Directive(call.line, call.source.source, LANGUAGE.name, name, value)
    try:
        READERS[name](request, directive, value)
    except ValueError:
        launch.left.append(Left(call.line, "", f"the srun option: {name}={value}"))
        return
    if before is not None and request.get(key) != before:
        launch.remarks.append(
            (call.line, f"srun asks for {name}={value}, and the directives for {before}: srun's is kept")
        )


def _read_mpirun(call: ContainerCall, words: Sequence[str], request: ScriptRequest) -> Launch | None:
    launch = Launch(Parallel.MPI, "mpirun" if words[0] == "orterun" else words[0])
    directive = Directive(call.line, call.source.source, request.scheduler, words[0])
    position = 1
    while position < len(words):
        word = words[position]
        values = list(words[position + 1 : position + 3])
        position += 1
        if not word.startswith("-"):
            return None
        if word in _MPIRUN_COUNTS and values:
            position += 1
            if values[0].isdecimal() and int(values[0][:9]):
                request.put(_MPIRUN_COUNTS[word], int(values[0][:9]), directive)
            continue
        count = 2 if word in _MPIRUN_TWO else 1 if word in _MPIRUN_ONE.split() else 0
        position += count
        shown = " ".join([word, *values[:count]])
        launch.left.append(Left(call.line, "", f"the {words[0]} option: {shown}"))
    return launch


def read_torchrun(command: Sequence[Word], line: int) -> tuple[dict[str, Any], Sequence[Word], list[Left]] | None:
    """torchrun's own options, and the program behind them; None when it is no torchrun, or one with options of note."""
    words = _skip_python(command)
    if words is None:
        return None
    found: dict[str, Any] = {}
    position = 0
    while position < len(words) and words[position].text.startswith("-"):
        name, equals, value = words[position].text.partition("=")
        plain = name.lstrip("-").replace("-", "_")
        position += 1
        if plain not in _TORCHRUN_OURS.split():
            return None
        if not equals and plain != "standalone" and position < len(words):
            value = words[position].text
            position += 1
        found[plain] = value
    if position >= len(words):
        return None
    shown = ", ".join(f"--{name}={value}" if value else f"--{name}" for name, value in found.items())
    left = [Left(line, "", f"kedge gives torchrun options of its own, instead of {shown}")] if found else []
    return found, words[position:], left


def _skip_python(command: Sequence[Word]) -> Sequence[Word] | None:
    """The words behind `torchrun` or `python -m torch.distributed.run`."""
    texts = [word.text for word in command]
    if texts[:1] == ["torchrun"]:
        return command[1:]
    is_module = texts[1:3] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"])
    return command[3:] if texts and texts[0].startswith("python") and is_module else None
