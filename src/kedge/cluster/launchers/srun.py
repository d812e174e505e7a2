# SPDX-License-Identifier: BSD-3-Clause
"""Slurm's srun: it knows the allocation, offers PMI itself, and needs no MPI on the host."""

from __future__ import annotations

import re

from kedge.base.patterns import late_pattern
from kedge.cluster.launchers.program import Groups, RankEnd, StartRequest, glue, read_number

_LABEL = late_pattern(r" *([0-9]{1,9}): ?(.*)", re.DOTALL)
_END = late_pattern(r"srun: error: (\S+): tasks? ([0-9]+)[-,0-9]*: (.*)")
_CODE = late_pattern(r"Exited with exit code ([0-9]{1,3})")
_LOST = late_pattern(r"srun: error: Task launch for \S+ failed on node (\S+): (.+)")
_LOSSES = ("connect", "contact", "communication", "timed out", "respond", "zero bytes")
# what it prints for a signal, and the signal's number
_SIGNALS = {
    "Killed": 9,
    "Out Of Memory": 9,
    "Terminated": 15,
    "Segmentation fault": 11,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Illegal instruction": 4,
    "Hangup": 1,
    "Interrupt": 2,
}


class _Srun:
    name = "srun"
    can_label = True
    is_own = False

    def list_words(self, request: StartRequest) -> Groups:
        groups: Groups = [(request.program or "srun",)]
        if request.is_counted:
            groups += [(f"--nodes={request.nodes}",), (f"--ntasks={request.size}",)]
            groups += [(f"--ntasks-per-node={request.per_node}",)] if request.per_node and request.size > 1 else []
        groups += [("--kill-on-bad-exit=1",)] if request.ends_together else []
        groups += [("--label",)] if request.is_labelled else []
        if request.mpi_type:
            groups.append((f"--mpi={request.mpi_type}",))
        if request.cpus_per_task:  # Slurm 22.05 to 23.02 forget it between sbatch and srun
            groups.append((glue("--cpus-per-task=", request.cpus_per_task),))
        return [*groups, *((option,) for option in request.options)]

    def split_label(self, line: str) -> tuple[int | None, str]:
        match = _LABEL.fullmatch(line)
        return (int(match[1]), match[2]) if match else (None, line)

    def read_end(self, line: str) -> RankEnd | None:
        match = _END.match(line)
        if match is None:
            return None
        code = _CODE.match(match[3])
        if code:
            return RankEnd(read_number(match[2]), int(code[1]), match[1])
        number = next((number for word, number in _SIGNALS.items() if match[3].startswith(word)), 0)
        return RankEnd(read_number(match[2]), 128 + number if number else None, match[1])


SRUN = _Srun()


def list_trial_words(nodes: int) -> list[str]:
    """A step that does nothing on every node of the job, beside the one that runs."""
    return [
        *("srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1"),
        *("--mem=0", "--gres=none", "--mpi=none", "true"),
    ]


def read_lost_node(text: str) -> tuple[str, str] | None:
    """The node that such a step could not reach, and why; None: it reached all, or was refused for another reason."""
    found = (match.groups() for match in _LOST.finditer(text))
    return next(
        ((name, reason.strip()) for name, reason in found if any(word in reason.lower() for word in _LOSSES)), None
    )
