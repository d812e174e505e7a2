# SPDX-License-Identifier: BSD-3-Clause
"""How a job ended, in sentences, from its state, exit code and signal."""

from __future__ import annotations

from kedge.model.job_state import JobStatus, State
from kedge.schedulers.exits import explain_code, explain_exit, explain_memory, explain_node, explain_timeout
from kedge.schedulers.slurm.accounts import EITHER_CODE
from kedge.schedulers.slurm.reasons import explain_waiting

# slurmd's way to say that it could not open the job's files; no signal has this number
_NO_OUTPUT = 53


def explain(status: JobStatus) -> str:
    """Why it waits or how it failed; empty where there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return explain_waiting(status)
    if status.state is State.UNKNOWN:
        return f"Slurm says '{status.raw}', which kedge does not know; 'scontrol show job {status.id}' says more"
    sentence = _ENDINGS.get(status.state)
    return sentence(status) if sentence else ""


def _explain_failure(status: JobStatus) -> str:
    if status.reason == "BadConstraints":
        return "it was never started: no node can serve what it asks for (memory, CPUs, GPUs or features); ask for less"
    if status.signal == _NO_OUTPUT:
        return (
            "its output file could not be opened on the node: does the directory exist there, and may you write in it?"
        )
    if status.exit_code and not status.signal and EITHER_CODE in dict(status.details):
        return explain_code(status.exit_code, status.exit_code + 128)
    # first: Slurm calls it a JobLaunchFailure when the script itself was killed
    return explain_exit(status) or {
        "JobLaunchFailure": "it could not be started on the node, or its script was killed; its output may say more",
        "RaisedSignal": "a program in it was ended by a signal; its output may say more",
        "NonZeroExitCode": "its script ended with an error; its output may say more",
        "InvalidAccount": "its account may not be used here; choose another with --account",
        "SystemFailure": "the cluster itself failed; submit it anew",
    }.get(status.reason, "it failed, and Slurm does not say how; its output may")


def _explain_timeout(status: JobStatus) -> str:
    if status.raw.upper().startswith("DEADLINE"):
        return "it could not end before the deadline it was given, and was ended"
    return explain_timeout(status)


def _explain_memory(status: JobStatus) -> str:
    asked = dict(status.details).get("memory asked for")
    return explain_memory(f"it asked for {asked}" if asked else "")


def _explain_preemption(_: JobStatus) -> str:
    return "it had to make room for a job of higher rank; submit it anew, or to a queue that is not preempted"


def _explain_cancellation(status: JobStatus) -> str:
    _, by, who = status.raw.partition(" by ")
    if status.reason == "DependencyNeverSatisfied":
        return "it was cancelled because a job it waited for ended in another way than asked"
    return f"it was cancelled by the user with the number {who}" if by and who.isdecimal() else "it was cancelled"


_ENDINGS = {
    State.FAILED: _explain_failure,
    State.TIMEOUT: _explain_timeout,
    State.OUT_OF_MEMORY: _explain_memory,
    State.NODE_FAILED: explain_node,
    State.PREEMPTED: _explain_preemption,
    State.CANCELLED: _explain_cancellation,
}
