# SPDX-License-Identifier: BSD-3-Clause
"""How a job ended, in sentences, from its state, exit code and signal."""

from __future__ import annotations

import signal as signals

from kedge.model.job_state import JobStatus, State
from kedge.schedulers.slurm.accounts import EITHER_CODE
from kedge.schedulers.slurm.reasons import explain_waiting
from kedge.schedulers.slurm.request import format_time

# slurmd's way to say that it could not open the job's files; no signal has this number
_NO_OUTPUT = 53
_CODES = {
    126: "a file was found but could not be run (is it executable, and for this kind of CPU?)",
    127: "the command was not found (is it in the image, or on the node's PATH?)",
    255: "the container or a remote shell could not be started; its output says why",
}
_SIGNALS = {
    "SIGKILL": "it was killed at once, which the kernel does when memory runs out; more is asked for with --mem",
    "SIGSEGV": "a program touched memory that is not its own (a segmentation fault)",
    "SIGTERM": "it was asked to end, as cancelling or the end of a time limit does",
    "SIGABRT": "a program gave up by itself (an assertion or an error of a library)",
    "SIGBUS": "a bus error: a file behind a mapping is gone, or /dev/shm is full",
    "SIGILL": "an illegal instruction: the program was built for another CPU",
    "SIGFPE": "a division by zero or the like",
    "SIGINT": "it was interrupted",
    "SIGXCPU": "it used more CPU time than it may",
    "SIGUSR1": "it was sent SIGUSR1 and does not handle it",
    "SIGUSR2": "it was sent SIGUSR2 and does not handle it",
}


def explain(status: JobStatus) -> str:
    """Why it waits or how it failed; empty where there is nothing to say."""
    if status.state in (State.QUEUED, State.HELD):
        return explain_waiting(status)
    if status.state is State.UNKNOWN:
        return f"Slurm says '{status.raw}', which kedge does not know; 'scontrol show job {status.id}' says more."
    sentence = _ENDINGS.get(status.state)
    return sentence(status) if sentence else ""


def _explain_failure(status: JobStatus) -> str:
    if status.reason == "BadConstraints":
        return (
            "It was never started: no node can serve what it asks for (memory, CPUs, GPUs or features). Ask for less."
        )
    if status.signal == _NO_OUTPUT:
        return "Its output file could not be opened on the node: does the folder exist there, and may you write in it?"
    if status.signal:  # Slurm calls it a JobLaunchFailure when the script itself was killed
        return f"It was ended by {_name_signal(status.signal)}: {_describe_signal(status.signal)}."
    if status.exit_code:
        return _explain_code(status.exit_code, dict(status.details).get(EITHER_CODE, ""))
    return {
        "JobLaunchFailure": "It could not be started on the node, or its script was killed; its output may say more.",
        "RaisedSignal": "A program in it was ended by a signal; its output may say more.",
        "NonZeroExitCode": "Its script ended with an error; its output may say more.",
        "InvalidAccount": "Its account may not be used here; choose another with --account.",
        "SystemFailure": "The cluster itself failed; submit it anew.",
    }.get(status.reason, "It failed, and Slurm does not say how; its output may.")


def _explain_code(code: int, either: str) -> str:
    meanings = [_describe_code(code), *([_describe_code(code + 128)] if either else [])]
    said = "; or ".join(each for each in meanings if each)
    return f"Its script ended with status {either or code}" + (f": {said}." if said else "; its output says more.")


def _describe_code(code: int) -> str:
    name = _name_signal(code - 128) if code > 128 else ""
    return _CODES.get(code) or (f"{name}, {_describe_signal(code - 128)}" if name.startswith("SIG") else "")


def _explain_timeout(status: JobStatus) -> str:
    if status.raw.upper().startswith("DEADLINE"):
        return "It could not end before the deadline it was given, and was ended."
    limit = f" of {format_time(status.time_limit)}" if status.time_limit else ""
    return f"It ran into its time limit{limit} and was ended; ask for more with --time, or save and resume the work."


def _explain_memory(status: JobStatus) -> str:
    details = dict(status.details)
    asked = f" (it had {details['memory asked for']})" if details.get("memory asked for") else ""
    return f"It used more memory than it had{asked} and was killed; ask for more with --mem."


def _explain_node(status: JobStatus) -> str:
    where = f" ({status.nodes})" if status.nodes else ""
    return f"A node it ran on{where} failed; submit it anew. It is not the job's fault."


def _explain_preemption(_: JobStatus) -> str:
    return "It had to make room for a job of higher rank; submit it anew, or to a queue that is not preempted."


def _explain_cancellation(status: JobStatus) -> str:
    _, by, who = status.raw.partition(" by ")
    if status.reason == "DependencyNeverSatisfied":
        return "It was cancelled because a job it waited for ended in another way than asked."
    return f"It was cancelled by the user with the number {who}." if by and who.isdecimal() else "It was cancelled."


_ENDINGS = {
    State.FAILED: _explain_failure,
    State.TIMEOUT: _explain_timeout,
    State.OUT_OF_MEMORY: _explain_memory,
    State.NODE_FAILED: _explain_node,
    State.PREEMPTED: _explain_preemption,
    State.CANCELLED: _explain_cancellation,
}


def _name_signal(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _describe_signal(number: int) -> str:
    return _SIGNALS.get(_name_signal(number), "its output may say more")
