# SPDX-License-Identifier: BSD-3-Clause
"""How the program of a step ended, in words: its status, a signal, or that memory ran out, and what helps.

The kernel counts the processes it killed for want of memory. Where the count cannot be read, the status and the last
lines of the output say it: compilers report that one of their programs was killed, and end with an ordinary status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kedge.base.frozen import frozen
from kedge.cluster.host_memory import KillWatch, explain_memory, suggest_job
from kedge.system.host.limits import read_limits
from kedge.system.process import describe_status

_SIGKILL = 128 + 9
_SIGNS = re.compile(
    r"\bkilled signal terminated program|\bcannot allocate memory|\bout of memory|\bvirtual memory exhausted"
    r"|\bmemoryerror\b|\bbad_alloc\b|\boutofmemoryerror\b|\bsigkill\b|\b(died with|signal:?) 9\b|(^|[\s:)])killed$",
    re.IGNORECASE,
)
_FEWER = "let the step use fewer processes (make -j2, MAX_JOBS=2)"


@frozen
class StepDeath:
    """What an error says of it."""

    how: str  # follows the name of the step
    remedy: str = ""


def describe_death(status: int, lines: Iterable[str], watch: KillWatch) -> StepDeath:
    """The words for a status that is not 0; `watch` was made before the program began."""
    how = describe_status(status)
    if watch.has_seen_kills():
        return StepDeath(f"{how}: memory ran out, and the kernel killed a process of it ({_tell_limit()})", _advise())
    if status == _SIGKILL:
        cause = "memory ran out, or somebody or a watchdog of this host killed it"
        return StepDeath(f"{how}: {cause} ({_tell_limit()})", _advise())
    if any(_SIGNS.search(line.strip()) for line in lines):
        return StepDeath(f"{how}, probably because memory ran out ({_tell_limit()})", _advise())
    return StepDeath(how)


def _tell_limit() -> str:
    return explain_memory(read_limits())


def _advise() -> str:
    job = suggest_job()
    return f"{_FEWER}, or build in a job with more memory: {job}" if job else f"{_FEWER}, or build with more memory"
