# SPDX-License-Identifier: BSD-3-Clause
"""How much memory this session may use, what sets the limit, and which processes were killed for it."""

from __future__ import annotations

from pathlib import Path

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.size import format_size
from kedge.cluster.host_memory import count_memory_kills, suggest_job
from kedge.system.host.limits import Limits, read_limits

_PULL_NEEDS = 512 << 20  # docs/guides/pull.md says so, and a test holds it
_EXAMPLE = ("kedge", "pull", "IMAGE")


def check_memory(surroundings: Surroundings) -> list[Finding]:
    """Check the smallest limit of control groups, `ulimit -v` and the host, and count memory kills."""
    root = Path(surroundings.root)
    kills, source = count_memory_kills(root)
    return judge_memory(read_limits(root), kills or 0, source)


def judge_memory(limits: Limits, kills: int, source: str) -> list[Finding]:
    """Report limits that are too low, and memory kills."""
    findings = [_judge_amount(limits)]
    if limits.address_space is not None:
        findings.append(_explain_address_space(limits.address_space))
    if kills:
        findings.append(
            Finding(
                "memory",
                NOTE,
                f"the kernel has killed {kills} {'process' if kills == 1 else 'processes'} because memory ran out",
                why=f"programs of this session or job needed more than its limit (counted in {source})",
                fix=f"request more memory (--memory 64G, or srun --mem=64G){_add_job(' or work in a job: ')}",
                docs="kedge help doctor memory",
            )
        )
    return findings


def _judge_amount(limits: Limits) -> Finding:
    if limits.memory is None:
        return Finding("memory", OK, "limit unknown")
    what = f"{format_size(limits.memory)} ({limits.memory_from})"
    if limits.memory >= _PULL_NEEDS:
        return Finding("memory", OK, what)
    return Finding(
        "memory",
        WARNING,
        what,
        why=f"a pull needs up to {format_size(_PULL_NEEDS)}; with less the kernel may kill it",
        fix=f"work in a job{_add_job(': ')}, or pull with --threads 1 --connections 1",
        docs="kedge help doctor memory",
    )


def _explain_address_space(limit: int) -> Finding:
    return Finding(
        "memory",
        WARNING,
        f"the address space is limited to {format_size(limit)} (ulimit -v)",
        why="CUDA reserves addresses for all memory of the host and the GPUs, so programs fail with 'out of memory' or "
        "cannot initialise; Java and Go fail, too",
        fix="ulimit -v unlimited, if the hard limit allows it; else work in a job, which has other limits",
        docs="kedge help doctor memory",
    )


def _add_job(before: str) -> str:
    job = suggest_job(_EXAMPLE)
    return f"{before}{job}" if job else ""
