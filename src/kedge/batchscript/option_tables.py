# SPDX-License-Identifier: BSD-3-Clause
"""The options that sbatch, qsub of Grid Engine and qsub of PBS know, and how their command lines are cut into options.

Slurm's were tried against sbatch 22.05, with later ones and those of Pyxis added; Grid Engine's against qsub 8.1.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# letter, or - for none
_SLURM_VALUES = """
a:array A:account -:bb -:bbf b:begin -:comment -:container -:container-id -:cpu-freq c:cpus-per-task d:dependency
-:deadline -:delay-boot D:chdir e:error -:export-file -:gid -:gres -:gres-flags i:input J:job-name L:licenses
M:clusters -:cluster m:distribution -:mail-type -:mail-user -:mcs-label n:ntasks -:ntasks-per-node
-:tasks-per-node N:nodes
o:output p:partition -:power -:priority -:profile q:qos S:core-spec -:signal -:switches -:thread-spec t:time
-:time-min -:uid -:wckey -:wrap -:cluster-constraint C:constraint F:nodefile -:mem -:mincpus -:reservation
-:tmp w:nodelist x:exclude -:mem-per-cpu -:sockets-per-node -:cores-per-socket -:threads-per-core B:extra-node-info
-:ntasks-per-core -:ntasks-per-socket -:cpus-per-gpu G:gpus -:gpu-bind -:gpu-freq -:gpus-per-node -:gpus-per-socket
-:gpus-per-task -:mem-per-gpu -:hint -:mem-bind -:ntasks-per-gpu -:open-mode -:acctg-freq -:batch -:network
-:prefer -:ntasks-per-tres -:kill-on-invalid-dep -:wait-all-nodes
-:tres-per-task -:tres-per-job -:oom-kill-step -:segment -:resv-ports -:extra -:tres-bind
-:container-image -:container-mounts -:container-name -:container-save -:container-workdir -:container-env
-:container-mount-entrypoint -:environment -:image -:volume -:module -:entrypoint
"""
_SLURM_OPTIONAL = "-:export -:get-user-env -:nice -:propagate -:exclusive k:no-kill"
_SLURM_FLAGS = """
H:hold s:oversubscribe -:ignore-pbs -:no-requeue O:overcommit -:parsable Q:quiet -:reboot -:requeue -:spread-job
-:use-min-nodes v:verbose W:wait -:contiguous h:help -:usage V:version -:test-only -:stepmgr
-:container-mount-home -:no-container-mount-home -:container-remap-root -:no-container-remap-root
-:container-writable -:container-readonly -:no-container-entrypoint -:container-entrypoint
"""
_SLURM_SAME = {"--tasks-per-node": "--ntasks-per-node", "--cluster": "--clusters"}
# what plain sbatch 22.05 does not know: a plugin of the site adds it, or a later Slurm
SLURM_ADDED = {
    **dict.fromkeys(("--image", "--volume", "--module", "--entrypoint"), "Shifter's plugin"),
    "--environment": "the plugin of CSCS' container engine",
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
SRUN_ONLY = frozenset(_SRUN_OPTIONS.split())
SLURM_RENAMED = {"--workdir": "--chdir", "--share": "--oversubscribe"}

_GRIDENGINE_OPTIONS = """
a ac adds ar A binding C c ckpt clearp clears dc display dl e hold_jid hold_jid_ad h i j js jsv l m M masterq mods N
o ot P p pe pty q r rdi rou S sc shell si soc stdin sync t tc tcon v w wd
"""
_GRIDENGINE_VALUES = frozenset(_GRIDENGINE_OPTIONS.split())
_GRIDENGINE_TWICE = ("pe",)  # followed by a name and a number
_GRIDENGINE_FLAGS = ("clear", "cwd", "hard", "soft", "notify", "V", "terse", "verify")
_GRIDENGINE_BOOLEAN = ("b", "R", "nostdin", "par", "now")

_PBS_VALUES = "aAcCdDeFhiJjkKlLmMnNopPqrRStTuvwW"
_PBS_FLAGS = "fIVXxzGh"


@dataclass(frozen=True, slots=True)
class CutOption:
    """One option as it was found: its full name, its value, and what is wrong with it."""

    name: str
    value: str | None = None
    problem: str = ""


def _name_options(table: str) -> dict[str, str]:
    return {f"--{name}": letter for letter, name in (each.split(":") for each in table.split())}


SLURM_VALUES = _name_options(_SLURM_VALUES)
SLURM_OPTIONAL = _name_options(_SLURM_OPTIONAL)
SLURM_FLAGS = _name_options(_SLURM_FLAGS)
SLURM_OPTIONS = {**SLURM_VALUES, **SLURM_OPTIONAL, **SLURM_FLAGS}
_SLURM_LETTERS = {letter: name for name, letter in SLURM_OPTIONS.items() if letter != "-"}


def cut_options(scheduler: str, words: Sequence[str]) -> list[CutOption]:
    """The options in the words of one directive line."""
    cutters: dict[str, Callable[[deque[str]], CutOption]] = {
        "slurm": _cut_slurm,
        "gridengine": _cut_gridengine,
        "pbs": _cut_pbs,
    }
    cutter = cutters.get(scheduler, _cut_any)
    rest = deque(words)
    found = []
    while rest:
        found.append(cutter(rest))
    return found


def _resolve_slurm(name: str) -> tuple[str, str]:
    """The full name of a long option that may be abbreviated, and what is wrong with it otherwise."""
    if name in SLURM_OPTIONS:
        return _SLURM_SAME.get(name, name), ""
    fitting = [each for each in SLURM_OPTIONS if each.startswith(name)]
    own = [each for each in fitting if not (each in SLURM_ADDED or each.startswith("--container-"))]
    fitting = own if len(own) == 1 else fitting  # what a plugin adds makes no beginning of a name doubtful
    if len(fitting) == 1:
        return _SLURM_SAME.get(fitting[0], fitting[0]), ""
    if fitting:
        return name, f"{name} is short for several options: {', '.join(sorted(fitting)[:4])}"
    return name, "unknown"


def _cut_slurm(rest: deque[str]) -> CutOption:
    word = rest.popleft()
    if word.startswith("--"):
        return _cut_slurm_long(word, rest)
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = _SLURM_LETTERS.get(word[1])
    if name is None:
        return CutOption(word[:2], word[2:] or None, "unknown")
    if name in SLURM_VALUES:
        value = word[2:] or (rest.popleft() if rest else None)
        return CutOption(name, value, "" if value else f"{word[:2]} wants a value")
    if name in SLURM_OPTIONAL:
        return CutOption(name, word[2:] or None)
    if len(word) > 2:  # flags in a bunch, as in -HQ
        rest.appendleft(f"-{word[2:]}")
    return CutOption(name)


def _cut_slurm_long(word: str, rest: deque[str]) -> CutOption:
    name, equals, value = word.partition("=")
    full, problem = _resolve_slurm(name)
    if equals and full in SLURM_FLAGS:
        return CutOption(full, value, problem or f"{name} takes no value")
    if equals:
        return CutOption(full, value, problem)
    if problem == "unknown" and rest and not rest[0].startswith("-"):
        return CutOption(full, rest.popleft(), problem)
    if full in SLURM_VALUES:
        if not rest:
            return CutOption(full, None, problem or f"{name} wants a value")
        return CutOption(full, rest.popleft(), problem)
    return CutOption(full, None, problem)


def _cut_gridengine(rest: deque[str]) -> CutOption:
    word = rest.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    name = word[1:]
    if name in _GRIDENGINE_TWICE:
        value = " ".join(rest.popleft() for _ in range(min(2, len(rest))))
        return CutOption(word, value or None, "" if " " in value else f"{word} wants a name and a number")
    if name in _GRIDENGINE_BOOLEAN or name in _GRIDENGINE_VALUES:
        if not rest:
            return CutOption(word, None, f"{word} wants a value")
        return CutOption(word, rest.popleft())
    if name in _GRIDENGINE_FLAGS:
        return CutOption(word)
    if rest and not rest[0].startswith("-"):
        return CutOption(word, rest.popleft(), "unknown")
    return CutOption(word, None, "unknown")


def _cut_pbs(rest: deque[str]) -> CutOption:
    word = rest.popleft()
    if not word.startswith("-") or word == "-":
        return CutOption("", word, f"'{word}' is not an option")
    letter = word[1]
    if letter in _PBS_FLAGS and letter not in _PBS_VALUES:
        if len(word) > 2:
            rest.appendleft(f"-{word[2:]}")
        return CutOption(word[:2])
    if letter in _PBS_VALUES:
        if word[2:] or letter == "h":
            return CutOption(word[:2], word[2:] or None)
        value = rest.popleft() if rest else None
        return CutOption(word[:2], value, "" if value else f"{word[:2]} wants a value")
    value = rest.popleft() if rest and not rest[0].startswith("-") else None
    return CutOption(word, value, "unknown")


def _cut_any(rest: deque[str]) -> CutOption:
    """For schedulers that are recognised and no more: nothing is wrong with their options."""
    word = rest.popleft()
    name, equals, value = word.partition("=")
    if equals:
        return CutOption(name, value)
    return CutOption(word, rest.popleft() if rest and not rest[0].startswith("-") else None)
