# SPDX-License-Identifier: BSD-3-Clause
"""How a job ended, in sentences that are the same for every scheduler: codes, signals, limits, nodes."""

from __future__ import annotations

import signal as signals

from kedge.base.duration import format_duration
from kedge.cluster.job_state import JobStatus

_SIGNALS = {
    "SIGKILL": "often sent by the kernel when memory runs out; request more with --mem",
    "SIGTERM": "sent to cancelled jobs and at the time limit",
    "SIGINT": "interrupted, as with Ctrl-C",
    "SIGSEGV": "segmentation fault (a program accessed invalid memory)",
    "SIGBUS": "a memory-mapped file is gone, or a disk or /dev/shm is full",
    "SIGABRT": "a program aborted; its output should say why",
    "SIGILL": "a program was built for another CPU",
    "SIGFPE": "arithmetic error, such as a division by zero",
    "SIGXCPU": "it exceeded its limit of CPU time",
    "SIGXFSZ": "a file exceeded the size limit",
    "SIGUSR1": "a user signal that the program does not handle",
    "SIGUSR2": "a user signal that the program does not handle",
}
_CODES = {
    126: "a file was found but cannot be executed (is it executable, and for this CPU?)",
    127: "command not found (is it in the image, or in the node's PATH?)",
    255: "the container or a remote shell did not start; its output says why",
}


def explain_exit(status: JobStatus) -> str:
    """A sentence about how it failed; empty when neither code nor signal is known."""
    if status.signal:
        return f"it was killed by {_name_signal(status.signal)}: {_describe_signal(status.signal)}"
    return explain_code(status.exit_code) if status.exit_code else ""


def explain_code(code: int, other: int | None = None) -> str:
    """Explain an exit code; `other` is what it may have been too, where accounts mix them up."""
    codes = [code] if other is None else [code, other]
    meanings = "; or ".join(filter(None, map(_describe_code, codes)))
    shown = " or ".join(map(str, codes))
    return f"its script failed with exit code {shown}" + (f": {meanings}" if meanings else "; its output says more")


def explain_timeout(status: JobStatus) -> str:
    """Explain that a job took longer than it may."""
    limit = f" of {format_duration(status.time_limit)}" if status.time_limit else ""
    return f"it reached its time limit{limit}; request more with --time, or make it save and resume its work"


def explain_memory(figure: str = "") -> str:
    """Explain that a job used more memory than it may; `figure` is what is known of how much that was."""
    return f"it exceeded its memory limit{f' ({figure})' if figure else ''}; request more with --mem"


def explain_used_memory(status: JobStatus, detail: str) -> str:
    """Explain a job's memory, where its account has the figure as `detail`."""
    most = dict(status.details).get(detail)
    return explain_memory(f"used at most {most}" if most else "")


def explain_node(status: JobStatus) -> str:
    """Explain that a job's node failed."""
    where = f" ({status.nodes})" if status.nodes else ""
    return f"a node it ran on{where} failed; submit it again"


def _describe_code(code: int) -> str:
    if code in _CODES or code <= 128:
        return _CODES.get(code, "")
    name = _name_signal(code - 128)
    return f"{name}, {_describe_signal(code - 128)}" if name in signals.Signals.__members__ else ""


def _describe_signal(number: int) -> str:
    return _SIGNALS.get(_name_signal(number), "its output may say more")


def _name_signal(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
