# SPDX-License-Identifier: BSD-3-Clause
"""Hydra, the mpiexec of MPICH and MVAPICH: it hands on all variables, and names a rank that failed by its process."""

from __future__ import annotations

import re

from kedge.base.patterns import late_pattern
from kedge.cluster.launchers.program import Groups, RankEnd, StartRequest, read_number

_LABEL = late_pattern(r"\[([0-9]{1,9})\] ?(.*)", re.DOTALL)
_PROCESS = late_pattern(r"= +(?:RANK ([0-9]+) )?PID ([0-9]+) RUNNING AT (\S+)")
_CODE = late_pattern(r"= +EXIT (?:CODE|STATUS): ([0-9]{1,5})")
_SIGNAL = late_pattern(
    r"= +KILLED BY SIGNAL: ([0-9]{1,2})|.*APPLICATION TERMINATED WITH THE EXIT STRING: .*signal ([0-9]+)"
)
_ABORT = late_pattern(r".*Abort\((-?[0-9]+)\) on node ([0-9]+) ")


class Hydra:
    """MPICH's; Intel's differs in its words."""

    name = "mpiexec"
    can_label = True
    is_own = False

    def list_words(self, request: StartRequest) -> Groups:
        """The program and its options."""
        groups: Groups = [(request.program or "mpiexec",), ("-n", str(request.size))]
        groups += [("-ppn", str(request.per_node))] if request.per_node else []
        if request.hosts:
            groups.append(("-hosts", ",".join(f"{name}:{count}" for name, count in request.hosts)))
        if request.host_file:
            groups.append(("-f", request.host_file))
        groups += [(self.label_word,)] if request.is_labelled else []
        groups += [(option,) for option in request.options]
        if not request.is_labelled:
            return [*groups, ("-genvlist", ",".join(request.variables))] if request.variables else groups
        return [*groups, ("-genvall",)]

    label_word = "-prepend-rank"

    def split_label(self, line: str) -> tuple[int | None, str]:
        """The rank in brackets."""
        match = _LABEL.fullmatch(line)
        return (int(match[1]), match[2]) if match else (None, line)

    def read_end(self, line: str) -> RankEnd | None:
        """Rank or process in one line, its status in the next."""
        if match := _PROCESS.match(line):
            return RankEnd(read_number(match[1]), None, match[3], int(match[2]))
        if match := _SIGNAL.match(line):
            return RankEnd(status=128 + int(match[1] or match[2]))
        if match := _CODE.match(line):
            return RankEnd(status=int(match[1]))
        if match := _ABORT.match(line):
            return RankEnd(read_number(match[2]), int(match[1]) & 255)
        return None


HYDRA = Hydra()
