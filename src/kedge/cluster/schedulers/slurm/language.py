# SPDX-License-Identifier: BSD-3-Clause
"""How sbatch reads scripts: tried against 22.05."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from kedge.cluster.schedulers.directive import CutOption, Directive
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.quantities import parse_array, parse_count, parse_dependencies
from kedge.cluster.schedulers.script_request import Reader, ScriptRequest, overlook, put_count, put_parsed, put_text
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.option_values import ENDLESS_TIMES, check_value, parse_memory, parse_time
from kedge.cluster.schedulers.slurm.options import FLAGS, LETTERS, OPTIONAL, OPTIONS, RENAMED, SYNONYMS, VALUES

# What the options of sbatch ask for.

_MAIL = {"begin": "begin", "end": "end", "fail": "fail"}
_PATTERNS = {"%j": "{id}", "%A": "{id}", "%J": "{id}", "%x": "{name}", "%a": "{index}", "%%": "%"}
_SEVERAL_TYPES = "kedge has no word for GPUs of several types"


def _read_nodes(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`2`, `2-4`; `2k` and `0` are taken by sbatch, too, and a job of kedge's has no word for them."""
    least, dash, _ = value.partition("-")
    request.put("nodes", parse_count(least), directive)
    if dash:
        request.leave(directive, f"only the smaller number of nodes, {least}, is kept")


def _read_gres(request: ScriptRequest, directive: Directive, value: str) -> None:
    """`gpu:2`, `gpu:a100:2`, `gpu`; other things stay as they are."""
    parts = [part.removeprefix("gres:").removeprefix("gres/") for part in value.split(",")]
    gpus = [part for part in parts if part.partition(":")[0] == "gpu"]
    if len(gpus) > 1:
        raise ValueError(_SEVERAL_TYPES)
    for part in gpus:
        _put_gpus(request, directive, "gpus_per_node", part.split(":")[1:])
    if others := [part for part in parts if part not in gpus and part.lower() != "none"]:
        request.leave(directive, words=f"--gres={','.join(others)}")


def _put_gpus(request: ScriptRequest, directive: Directive, key: str, words: list[str]) -> None:
    if words and words[-1].isdecimal():
        count, words = int(words[-1][:9]), words[:-1]
    else:
        count = 1
    request.put(key, count, directive)
    if words:
        request.put("gpu_type", words[0], directive)


def _read_gpus(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        if "," in value:
            raise ValueError(_SEVERAL_TYPES)
        if value:
            _put_gpus(request, directive, key, value.removeprefix("gpu:").split(":"))

    return read


def _read_memory(request: ScriptRequest, directive: Directive, value: str) -> None:
    size = parse_memory(value)
    if size:
        request.put("memory", size, directive)
    else:  # all that the node has
        request.leave(directive, "it means all memory of the node")


def _read_time(request: ScriptRequest, directive: Directive, value: str) -> None:
    seconds = 0 if value.lower() in ENDLESS_TIMES else parse_time(value)
    if seconds:
        request.put("time", seconds, directive)
    else:
        request.asked.pop("time", None)
        request.leave(directive, "it asks for time without end")


def _read_array(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value:  # an empty one takes nothing away
        request.put("array", parse_array(value), directive)


def _read_exclusive(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value:
        request.leave(directive)
    else:
        request.put("exclusive", True, directive)


def _read_mail(request: ScriptRequest, directive: Directive, value: str) -> None:
    words = {word.strip().lower() for word in value.split(",")}
    if words == {"none"}:
        return
    known = set(_MAIL) if "all" in words else words & set(_MAIL)
    known |= set(request.get("mail_on") or ())  # sbatch adds them up, over several lines too
    request.put("mail_on", tuple(name for name in _MAIL if name in known), directive)
    if others := words - set(_MAIL) - {"all", "none"}:
        request.leave(directive, f"kedge sends no mail for {', '.join(sorted(others))}", words="")


def _read_export(request: ScriptRequest, directive: Directive, value: str) -> None:
    if value.upper() not in ("", "ALL"):
        request.leave(directive)


def _read_pattern(key: str) -> Reader:
    def read(request: ScriptRequest, directive: Directive, value: str) -> None:
        try:
            request.put(key, _convert_pattern(value), directive)
        except ValueError as problem:
            request.leave(directive, str(problem), words="")

    return read


def _convert_pattern(value: str) -> str:
    """`%x-%j.out` as `{name}-{id}.out`; other patterns raise ValueError, because only Slurm knows them."""
    unknown = [part for part in re.findall(r"%\d*[A-Za-z]", value) if part not in _PATTERNS]
    if unknown:
        raise ValueError(f"only Slurm knows what {unknown[0]} stands for")
    return re.sub(r"%%|%[A-Za-z]", lambda found: _PATTERNS[found.group()], value)


READERS: Mapping[str, Reader] = {
    "--job-name": put_text("name"),
    "--nodes": _read_nodes,
    "--ntasks": put_count("tasks"),
    "--ntasks-per-node": put_count("tasks_per_node"),
    "--cpus-per-task": put_count("cpus_per_task"),
    "--gres": _read_gres,
    "--gpus": _read_gpus("gpus"),
    "--gpus-per-node": _read_gpus("gpus_per_node"),
    "--gpus-per-task": _read_gpus("gpus_per_task"),
    "--mem": _read_memory,
    "--mem-per-cpu": put_parsed("memory_per_cpu", parse_memory),
    "--mem-per-gpu": put_parsed("memory_per_gpu", parse_memory),
    "--time": _read_time,
    "--exclusive": _read_exclusive,
    "--account": put_text("account"),
    "--partition": put_text("queue"),
    "--qos": put_text("qos"),
    "--reservation": put_text("reservation"),
    "--constraint": put_text("constraint"),
    "--array": _read_array,
    "--dependency": put_parsed("dependencies", parse_dependencies),
    "--begin": put_text("begin"),
    "--mail-user": put_text("mail"),
    "--mail-type": _read_mail,
    "--output": _read_pattern("output"),
    "--error": _read_pattern("error"),
    "--chdir": put_text("directory"),
    "--export": _read_export,
    "--parsable": overlook,
    "--quiet": overlook,
}


# what plain sbatch 22.05 does not know: a plugin of the site adds it, or a later Slurm
_ADDED = {
    **dict.fromkeys(("--image", "--volume", "--module", "--entrypoint"), "Shifter's plugin"),
    "--environment": "the plugin of CSCS' container engine",
    **dict.fromkeys((name for name in OPTIONS if "container-" in name), "Pyxis"),
    "--tres-per-task": "Slurm 23.11",
    **dict.fromkeys(("--oom-kill-step", "--segment", "--stepmgr"), "Slurm 24.05"),
    **dict.fromkeys(("--extra", "--resv-ports", "--tres-bind", "--tres-per-job"), "a later Slurm than 22.05"),
}
# options of srun that people give to sbatch
_SRUN_OPTIONS = """
--accel-bind --bcast --cpu-bind --cpu_bind --disable-status --epilog --exact --immediate --jobid --kill-on-bad-exit
--label --mpi --msg-timeout --multi-prog --overlap --prolog --pty --relative --slurmd-debug --task-epilog
--task-prolog --threads --unbuffered --x11
"""
_SRUN_REMEDY = "give it to srun, in the line that starts the program"


def _resolve_name(name: str) -> tuple[str, str]:
    """The full name of a long option that may be abbreviated, and what is wrong with it otherwise."""
    if name in OPTIONS:
        return SYNONYMS.get(name, name), ""
    fitting = [known for known in OPTIONS if known.startswith(name)]
    own = [known for known in fitting if known not in _ADDED]
    fitting = own if len(own) == 1 else fitting  # what a plugin adds makes no beginning of a name doubtful
    if len(fitting) == 1:
        return SYNONYMS.get(fitting[0], fitting[0]), ""
    if fitting:
        return name, f"{name} is short for several options: {', '.join(sorted(fitting)[:4])}"
    return name, "unknown"


def _cut(words: deque[str]) -> CutOption:
    word = words.popleft()
    if word.startswith("--"):
        return _cut_long(word, words)
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = LETTERS.get(word[1])
    if name is None:
        return CutOption(word[:2], word[2:] or None, "unknown")
    if name in VALUES:
        value = word[2:] or (words.popleft() if words else None)
        return CutOption(name, value, "" if value else f"{word[:2]} wants a value")
    if name in OPTIONAL:
        return CutOption(name, word[2:] or None)
    if len(word) > 2:  # flags in a bunch, as in -HQ
        words.appendleft(f"-{word[2:]}")
    return CutOption(name)


def _cut_long(word: str, words: deque[str]) -> CutOption:
    name, equals, value = word.partition("=")
    full, problem = _resolve_name(name)
    if equals and full in FLAGS:
        return CutOption(full, value, problem or f"{name} takes no value")
    if equals:
        return CutOption(full, value, problem)
    if problem == "unknown" and words and not words[0].startswith("-"):
        return CutOption(full, words.popleft(), problem)
    if full in VALUES:
        if not words:
            return CutOption(full, None, problem or f"{name} wants a value")
        return CutOption(full, words.popleft(), problem)
    return CutOption(full, None, problem)


LANGUAGE = Language(
    FACTS,
    _cut,
    READERS,
    check_value,
    readers_refuse=False,  # which is what the checks of values are for
    line_end=LineEnd.DROPPED,
    also_reads=("pbs", "lsf"),
    ignore_others="#SBATCH --ignore-pbs",
    separators=("hetjob", "packjob"),
    needs_shebang=True,
    refuses_dos=True,
    added=_ADDED,
    remedies={
        **dict.fromkeys(_SRUN_OPTIONS.split(), _SRUN_REMEDY),
        **{old: f"write {new}" for old, new in RENAMED.items()},
    },
    long_options=tuple(OPTIONS),
    refusable={
        "memory": ("--mem", "--mem-per-cpu", "--mem-per-gpu"),
        "gpus": ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"),
        "arrays": ("--array",),
        "export": ("--export",),
        "exclusive": ("--exclusive",),
        "nodelist": ("--nodelist", "--nodefile"),
    },
    queue_options=("--partition",),
    repeatable=("--mail-type", "--comment", "--signal", "--exclude"),  # mail adds up
    path_options=("--output", "--error", "--input"),
    path_remedy="use sbatch's own patterns (%j the id, %x the name, %u the user), or write the path out",
    task_in_output=re.compile(r"%\d*[aAjJ]"),
    has_tasks=True,
    has_gpu_options=True,
)
