# SPDX-License-Identifier: BSD-3-Clause
"""The limits of this shell that its programs inherit: processes, open files, locked memory, core files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kedge.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.frozen import frozen
from kedge.host.limits import read_limits
from kedge.model.size import format_size

_PULL_PROCESSES = 64  # docs/guides/pull.md says so, and a test holds it
_FEW_FILES = 1024
_UNLIMITED = "unlimited"
_RDMA_FOLDER = "sys/class/infiniband"


@frozen
class Limit:
    """A line of /proc/self/limits."""

    soft: str
    hard: str


def _read_limit(root: Path, name: str) -> Limit | None:
    """The limit called so, as `Max open files   1024   524288   files`; None where there is no such line."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/limits").read_text(errors="replace").splitlines():
            words = line[26:].split()
            if line[:26].strip() == name and len(words) >= 2:
                return Limit(words[0], words[1])
    return None


def check_processes(surroundings: Surroundings) -> list[Finding]:
    """How many more processes and threads may be started."""
    limits = read_limits(Path(surroundings.root))
    return [judge_processes(limits.processes, limits.processes_from)]


def judge_processes(left: int | None, source: str) -> Finding:
    """Whether that is enough for a pull, and for programs that have a thread per core."""
    if left is None:
        return Finding("processes", OK, "no limit is known")
    if left >= _PULL_PROCESSES:
        return Finding("processes", OK, f"{left} more may be started ({source})")
    return Finding(
        "processes",
        WARNING,
        f"only {left} more may be started ({source})",
        "threads count, too: numerical libraries start one per core, and data loaders and MPI start processes; what "
        "fails says 'Resource temporarily unavailable' or 'cannot allocate memory'",
        "end what you do not need (ps -u $USER), raise it (ulimit -u) or work in a job; OMP_NUM_THREADS=4 starts less",
        "kedge help doctor processes",
    )


def check_open_files(surroundings: Surroundings) -> list[Finding]:
    """ulimit -n."""
    limit = _read_limit(Path(surroundings.root), "Max open files")
    if limit is None:
        return [Finding("open-files", OK, "no limit is known")]
    what = f"{limit.soft} (at most {limit.hard})"
    if not limit.soft.isdecimal() or int(limit.soft) >= _FEW_FILES:
        return [Finding("open-files", OK, what)]
    return [
        Finding(
            "open-files",
            WARNING,
            what,
            "data loaders with many workers and MPI with many ranks open more: 'Too many open files'",
            _raise_open_files(limit),
            "kedge help doctor open-files",
        )
    ]


def _raise_open_files(limit: Limit) -> str:
    if limit.hard == limit.soft:
        return "this shell cannot raise it: work in a job, where the limit is another, or ask the administrators"
    return f"ulimit -n {limit.hard}"


def check_locked_memory(surroundings: Surroundings) -> list[Finding]:
    """ulimit -l, which RDMA needs without a limit."""
    root = Path(surroundings.root)
    limit = _read_limit(root, "Max locked memory")
    has_rdma = False
    with contextlib.suppress(OSError):
        has_rdma = any((root / _RDMA_FOLDER).iterdir())
    if limit is None or limit.soft == _UNLIMITED:
        return [Finding("locked-memory", OK, "without limit")]
    what = format_size(int(limit.soft)) if limit.soft.isdecimal() else limit.soft
    if not has_rdma:
        return [Finding("locked-memory", OK, f"{what}; there is no RDMA network here that needs more")]
    fix = "ulimit -l unlimited" if limit.hard == _UNLIMITED else "it is the administrators' to raise"
    return [
        Finding(
            "locked-memory",
            WARNING,
            f"{what} may be locked, and this node has an RDMA network",
            "MPI, NCCL and UCX lock the memory that the network card reads: they fail ('Cannot allocate memory', "
            "'ibv_reg_mr'), or quietly use slow TCP",
            f"{fix}: in jobs of Slurm, LimitMEMLOCK=infinity for slurmd and PropagateResourceLimitsExcept=MEMLOCK. "
            "A login node may have a limit that compute nodes do not have: ask in a job, too",
            "kedge help doctor locked-memory",
        )
    ]


def check_core_files(surroundings: Surroundings) -> list[Finding]:
    """ulimit -c: a crash of a large program may fill a quota."""
    root = Path(surroundings.root)
    limit = _read_limit(root, "Max core file size")
    pattern = ""
    with contextlib.suppress(OSError):
        pattern = (root / "proc/sys/kernel/core_pattern").read_text(errors="replace").strip()
    if limit is None or limit.soft == "0" or pattern.startswith("|"):
        return [Finding("core-files", OK, "not written" if limit and limit.soft == "0" else "left to the system")]
    return [
        Finding(
            "core-files",
            NOTE,
            f"up to {limit.soft} bytes are written when a program crashes",
            "a crashed training program leaves a file as large as its memory in the current directory, one per rank; "
            "that fills quotas",
            "ulimit -c 0, in the job script",
            "kedge help doctor core-files",
        )
    ]
