# SPDX-License-Identifier: BSD-3-Clause
"""What an exit code or a signal says about a script that ended, in a sentence; for the schedulers that say no more."""

from __future__ import annotations

import signal as signals

from kedge.model.job_state import JobStatus

_SIGNALS = {
    "SIGKILL": "often its node had no memory left",
    "SIGSEGV": "a program touched memory that is not its own",
    "SIGBUS": "a file it had mapped vanished, or a disk or /dev/shm was full",
    "SIGABRT": "a program gave up by itself; its output should say why",
    "SIGFPE": "a number was divided by zero",
    "SIGILL": "a program is made for another processor",
    "SIGXCPU": "it used more processor time than it may",
    "SIGXFSZ": "a file became larger than it may",
    "SIGTERM": "somebody or the scheduler asked it to end",
    "SIGINT": "somebody interrupted it",
}
_CODES = {
    126: "a program could not be executed",
    127: "a program was not found",
    255: "kedge itself could not start the container, or a program was not reached; the output says which",
}


def explain_exit(status: JobStatus) -> str:
    """A sentence about how it failed; empty when neither code nor signal is known."""
    if status.signal:
        return f"It was ended by {_describe(status.signal)}."
    code = status.exit_code
    if not code:
        return ""
    if code > 128 and code - 128 in set(signals.Signals):
        return f"It ended with exit code {code}: a program in it was ended by {_describe(code - 128)}."
    known = f": {_CODES[code]}" if code in _CODES else "; its output should say why"
    return f"It ended with exit code {code}{known}."


def _describe(number: int) -> str:
    try:
        name = signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} ({_SIGNALS[name]})" if name in _SIGNALS else name
