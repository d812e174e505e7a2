# SPDX-License-Identifier: BSD-3-Clause
"""How sbatch reads scripts: tried against 22.05."""

from __future__ import annotations

import re
from collections import deque

from kedge.cluster.schedulers.directive import CutOption
from kedge.cluster.schedulers.language import Language, LineEnd
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.schedulers.slurm.option_values import check_value
from kedge.cluster.schedulers.slurm.options import FLAGS, LETTERS, OPTIONAL, OPTIONS, RENAMED, SYNONYMS, VALUES
from kedge.cluster.schedulers.slurm.script_reader import READERS

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
