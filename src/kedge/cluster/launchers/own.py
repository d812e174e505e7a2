# SPDX-License-Identifier: BSD-3-Clause
"""kedge's own start, without an MPI launcher: on this host, or by Grid Engine's `qrsh -inherit` on each node of a job.

One `kedge rank` per node starts the node's ranks and ends them; it labels lines itself. `qrsh` starts one such process,
so its words are for one host.
"""

from __future__ import annotations

import re

from kedge.base.patterns import late_pattern
from kedge.cluster.launchers.program import Groups, RankEnd, StartRequest

_LABEL = late_pattern(r"([0-9]{1,9})([:+]) (.*)", re.DOTALL)  # +: the line goes on with the next one of this rank
_END = late_pattern(r"kedge: rank ([0-9]{1,9}) ended with ([0-9]{1,3}) on (\S+)")


def label_line(rank: int, line: str, *, is_part: bool = False) -> str:
    """A rank's line, or a part of a long one, as `split_label` reads it."""
    return f"{rank}{'+' if is_part else ':'} {line}"


def tell_end(rank: int, status: int, host: str) -> str:
    """The line that says which rank failed first, as `read_end` reads it."""
    return f"kedge: rank {rank} ended with {status} on {host}"


class _Own:
    can_label = True
    is_own = True

    def __init__(self, name: str, words: tuple[str, ...]) -> None:
        self.name = name
        self._words = words

    def list_words(self, request: StartRequest) -> Groups:
        if not self._words:
            return []
        groups: Groups = [(request.program or self._words[0], *self._words[1:])]
        groups += [(option,) for option in request.options]
        return [*groups, *((name,) for name, _ in request.hosts[:1])]

    def split_label(self, line: str) -> tuple[int | None, str]:
        match = _LABEL.fullmatch(line)
        if match is None:
            return None, line
        return int(match[1]), match[3].removesuffix("\n") if match[2] == "+" else match[3]

    def read_end(self, line: str) -> RankEnd | None:
        match = _END.match(line)
        return RankEnd(int(match[1]), int(match[2]), match[3]) if match else None


LOCAL = _Own("local", ())
QRSH = _Own("qrsh", ("qrsh", "-inherit", "-V"))
