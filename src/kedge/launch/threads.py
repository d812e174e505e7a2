# SPDX-License-Identifier: BSD-3-Clause
"""How many threads a process should compute with: its share of the node's CPUs, never all of them in every process."""

from __future__ import annotations

from kedge.base.counting import count_things
from kedge.base.frozen import frozen


@frozen
class ThreadChoice:
    """What OMP_NUM_THREADS becomes."""

    count: int  # 0: leave it as it is
    reason: str  # empty: there is nothing to say


def choose_omp_threads(cpus: int, processes: int, given: str = "") -> ThreadChoice:
    """Choose threads for one of `processes` that share `cpus`; `given` is what is set already. 0 CPUs: unknown.

    PBS sets it to the CPUs of the whole chunk, and many a profile to those of the node: such a number is replaced.
    """
    share = max(1, cpus // max(1, processes))
    set_already = int(given) if given.isascii() and given.isdecimal() and len(given) < 7 else 0
    if set_already and (not cpus or set_already <= share):
        return ThreadChoice(0, "")
    if not cpus:
        return ThreadChoice(1 if processes > 1 and not given else 0, "")
    if set_already:
        reason = f"OMP_NUM_THREADS={given} is more than the {cpus} CPUs of {count_things(processes, 'process')}"
        return ThreadChoice(share, f"{reason}: kedge sets {share}; --env OMP_NUM_THREADS={given} keeps it")
    return ThreadChoice(share, "") if not given else ThreadChoice(0, "")
