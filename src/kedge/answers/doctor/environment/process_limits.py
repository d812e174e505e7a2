# SPDX-License-Identifier: BSD-3-Clause
"""Limits that programs inherit from this shell: processes, open files, locked memory, core files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.system.host.limits import read_limits

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
    """Read a limit by its name, as in `Max open files   1024   524288   files`; None if there is no such line."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/limits").read_text(errors="replace").splitlines():
            words = line[26:].split()
            if line[:26].strip() == name and len(words) >= 2:
                return Limit(words[0], words[1])
    return None


def check_processes(surroundings: Surroundings) -> list[Finding]:
    """Check how many more processes and threads may start."""
    limits = read_limits(Path(surroundings.root))
    return [judge_processes(limits.processes, limits.processes_from)]


def judge_processes(left: int | None, source: str) -> Finding:
    """Check whether that is enough for a pull, and for programs with a thread per core."""
    if left is None:
        return Finding("processes", OK, "limit unknown")
    if left >= _PULL_PROCESSES:
        return Finding("processes", OK, f"{left} more may start ({source})")
    return Finding(
        "processes",
        WARNING,
        f"only {left} more may start ({source})",
        why="threads count, too: numerical libraries start one per core, and data loaders and MPI start "
        "processes; they "
        "fail with 'Resource temporarily unavailable' or 'cannot allocate memory'",
        fix="stop processes you do not need (ps -u $USER), raise the limit (ulimit -u), start fewer threads "
        "(OMP_NUM_THREADS=4) or work in a job",
        docs="kedge help doctor processes",
    )


def check_open_files(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -n."""
    limit = _read_limit(Path(surroundings.root), "Max open files")
    if limit is None:
        return [Finding("open-files", OK, "limit unknown")]
    what = f"{limit.soft} (at most {limit.hard})"
    if not limit.soft.isdecimal() or int(limit.soft) >= _FEW_FILES:
        return [Finding("open-files", OK, what)]
    return [
        Finding(
            "open-files",
            WARNING,
            what,
            why="data loaders with many workers and MPI with many ranks open more: 'Too many open files'",
            fix=_raise_open_files(limit),
            docs="kedge help doctor open-files",
        )
    ]


def _raise_open_files(limit: Limit) -> str:
    if limit.hard == limit.soft:
        return "this shell cannot raise it: work in a job, which has other limits, or ask the administrators"
    return f"ulimit -n {limit.hard}"


def check_locked_memory(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -l, which must be unlimited for RDMA."""
    root = Path(surroundings.root)
    limit = _read_limit(root, "Max locked memory")
    has_rdma = False
    with contextlib.suppress(OSError):
        has_rdma = any((root / _RDMA_FOLDER).iterdir())
    if limit is None or limit.soft == _UNLIMITED:
        return [Finding("locked-memory", OK, "unlimited")]
    what = format_size(int(limit.soft)) if limit.soft.isdecimal() else limit.soft
    if not has_rdma:
        return [Finding("locked-memory", OK, f"{what}; enough, as this node has no RDMA network")]
    fix = "ulimit -l unlimited" if limit.hard == _UNLIMITED else "only administrators can raise it"
    return [
        Finding(
            "locked-memory",
            WARNING,
            f"only {what} may be locked, too little for the RDMA network of this node",
            why="MPI, NCCL and UCX lock the memory that the network card reads: they fail ('Cannot allocate memory', "
            "'ibv_reg_mr') or fall back to slow TCP",
            fix=f"{fix}; for Slurm jobs: LimitMEMLOCK=infinity for slurmd and PropagateResourceLimitsExcept=MEMLOCK. "
            "Compute nodes may have another limit: run 'kedge doctor' in a job, too",
            docs="kedge help doctor locked-memory",
        )
    ]


def check_core_files(surroundings: Surroundings) -> list[Finding]:
    """Check ulimit -c: the core file of a large program may fill a quota."""
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
            f"a program that crashes writes a core file (size limit: {limit.soft})",
            why="a crashed training program leaves a file as large as its memory in the current directory, one "
            "per rank; "
            "that fills quotas",
            fix="add to the job script: ulimit -c 0",
            docs="kedge help doctor core-files",
        )
    ]
