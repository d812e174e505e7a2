# SPDX-License-Identifier: BSD-3-Clause
"""How a job ended, in sentences, from its state, exit code and signal."""

from __future__ import annotations

from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.exit_text import explain_code, explain_exit, explain_memory, explain_node, explain_timeout
from kedge.cluster.schedulers.slurm.accounts import EITHER_CODE
from kedge.cluster.schedulers.slurm.reasons import explain_waiting

# slurmd's way to say that it could not open the job's files; no signal has this number
_NO_OUTPUT = 53


def explain(status: JobStatus) -> str:
    """Why it waits or how it failed; empty where there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return explain_waiting(status)
    if status.state is State.UNKNOWN:
        return f"unknown Slurm state '{status.raw}'; 'scontrol show job {status.id}' shows more"
    sentence = _ENDINGS.get(status.state)
    return sentence(status) if sentence else ""


def _explain_failure(status: JobStatus) -> str:
    if status.reason == "BadConstraints":
        return "it never started: no node has what it requests (memory, CPUs, GPUs or features); request less"
    if status.signal == _NO_OUTPUT:
        return "the node could not open its output file: check that its directory exists there and is writable"
    if status.exit_code and not status.signal and EITHER_CODE in dict(status.details):
        return explain_code(status.exit_code, status.exit_code + 128)
    # first: Slurm calls it a JobLaunchFailure when the script itself was killed
    return explain_exit(status) or {
        "JobLaunchFailure": "the node could not start it, or its script was killed; its output may say more",
        "RaisedSignal": "a signal killed one of its programs; its output may say more",
        "NonZeroExitCode": "its script failed; its output may say more",
        "InvalidAccount": "you may not use its account; choose another with --account",
        "SystemFailure": "the cluster itself failed; submit it again",
    }.get(status.reason, "it failed, and Slurm gives no reason; its output may say more")


def _explain_timeout(status: JobStatus) -> str:
    if status.raw.upper().startswith("DEADLINE"):
        return "it could not complete before its deadline"
    return explain_timeout(status)


def _explain_memory(status: JobStatus) -> str:
    asked = dict(status.details).get("memory asked for")
    return explain_memory(f"requested: {asked}" if asked else "")


def _explain_preemption(_: JobStatus) -> str:
    return "a job with higher priority preempted it; submit it again, or to a partition without preemption"


def _explain_cancellation(status: JobStatus) -> str:
    _, by, who = status.raw.partition(" by ")
    if status.reason == "DependencyNeverSatisfied":
        return "it was cancelled because a job it depends on did not end as required"
    return f"it was cancelled by user id {who}" if by and who.isdecimal() else "it was cancelled"


_ENDINGS = {
    State.FAILED: _explain_failure,
    State.TIMEOUT: _explain_timeout,
    State.OUT_OF_MEMORY: _explain_memory,
    State.NODE_FAILED: explain_node,
    State.PREEMPTED: _explain_preemption,
    State.CANCELLED: _explain_cancellation,
}
