# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI's mpirun, of ORTE (up to 4) and PRRTE (5): it hands on few variables and binds ranks to cores by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kedge.base.patterns import late_pattern
from kedge.cluster.launchers.program import Groups, RankEnd, StartRequest, read_number

# [1,0]<stdout>:text of Open MPI 4, [prterun-host-123@1,0]<stdout>: text of Open MPI 5
_LABEL = late_pattern(
    r"(\[(?:[0-9]+|[^][,]*(?P<five>)),([0-9]{1,9})\](?:<std(?:out|err|diag)>)?:(?(five) ?))(.*)", re.DOTALL
)
_NAME = late_pattern(r"\s*Process name: \[+[^][]*(?:\],)?,?([0-9]+)\]")
_CODE = late_pattern(r"\s*Exit code: +([0-9]{1,3})")
_SIGNAL = late_pattern(r".*process rank ([0-9]+) with PID [0-9]+ on node (\S+) exited on signal ([0-9]+)")
_ABORT = late_pattern(r".*MPI_ABORT was invoked on rank ([0-9]+)")
_ABORT_CODE = late_pattern(r"\s*with errorcode (-?[0-9]+)")
_AGENTS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")


def list_settings(
    environ: Iterable[str], *, is_alone: bool, has_ssh: bool, is_root: bool
) -> tuple[tuple[str, str], ...]:
    """Variables without which mpirun refuses: on one host it wants an ssh that it never calls, root must confirm."""
    made: list[tuple[str, str]] = []
    if is_alone and not has_ssh and "OMPI_MCA_plm" not in environ:
        made += [(name, "false") for name in _AGENTS]
    if is_root:
        made += [(name + suffix, "1") for name in _AS_ROOT for suffix in ("", "_CONFIRM")]
    return tuple((name, value) for name, value in made if name not in environ)


class _OpenMpi:
    name = "mpirun"
    can_label = True
    is_own = False

    def list_words(self, request: StartRequest) -> Groups:
        # by its path mpirun takes what is above bin as its prefix, and refuses to start where that is /
        groups: Groups = [(request.program.removeprefix("/bin/") or "mpirun",), ("-np", str(request.size))]
        if request.hosts:
            groups.append(("--host", ",".join(f"{name}:{count}" for name, count in request.hosts)))
        groups += [("--map-by", f"ppr:{request.per_node}:node" if request.per_node else "slot")]
        if request.host_file:
            groups.append(("-hostfile", request.host_file))
        if request.is_labelled:
            # 5 puts a blank behind its label, and only by the long one can it be told from 4
            is_five = request.version.startswith("5.")
            groups.append(("--output", "tag-fullname") if is_five else ("--tag-output",))
            if request.cpus_per_task not in ("", "1") or request.is_oversubscribed:
                groups.append(("--bind-to", "none"))  # one core each would be too few
        if request.is_oversubscribed:
            groups.append(("--oversubscribe",))
        groups += [(option,) for option in request.options]
        return [*groups, *(("-x", name) for name in request.variables)]

    def split_label(self, line: str) -> tuple[int | None, str]:
        match = _LABEL.fullmatch(line)
        if not match:
            return None, line
        # a rank that writes a line in pieces, as Python does on a terminal, gets a label before each of them
        return int(match[3]), match[4].replace(match[1], "")

    def read_end(self, line: str) -> RankEnd | None:
        if match := _SIGNAL.match(line):
            return RankEnd(read_number(match[1]), 128 + int(match[3]), match[2])
        if match := _NAME.match(line) or _ABORT.match(line):
            return RankEnd(read_number(match[1]))
        if match := _CODE.match(line):
            return RankEnd(status=int(match[1]))
        if match := _ABORT_CODE.match(line):
            return RankEnd(status=int(match[1]) & 255)
        return None


OPEN_MPI = _OpenMpi()
