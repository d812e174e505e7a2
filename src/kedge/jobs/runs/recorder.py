# SPDX-License-Identifier: BSD-3-Clause
"""Writes the record of a run: once when it begins, so that a killed run leaves one too, and again when it has ended.

Nothing that goes wrong here changes how the run ends: the program's exit status is worth more than its record.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kedge.errors import KedgeError, NoSpace
from kedge.jobs.runs.image_facts import describe_image
from kedge.jobs.runs.run_facts import RunRequest, describe_run, format_time
from kedge.jobs.runs.run_record import ENDED, encode_record, name_record, refuse_place
from kedge.system.files import write_atomically
from kedge.system.host.cgroups import read_hierarchies
from kedge.system.host.usage_watch import UsageWatch

TYPE_CHECKING = False  # as typing has it, whose import costs every recorded run
if TYPE_CHECKING:
    from typing import Any

_MODE = 0o600  # variables and commands are the user's own business
_PEAKS = {2: "memory.peak", 1: "memory.max_usage_in_bytes"}

Say = Callable[[str, str], None]


class RunRecorder:
    """One record; `say(level, text)` hears of problems and of the file's name."""

    def __init__(self, request: RunRequest, environ: Mapping[str, str], say: Say) -> None:
        self._request = request
        self._environ = environ
        self._say = say
        self._began = time.monotonic()
        moment = time.time()
        name = request.record_to or name_record(os.uname().nodename, moment, os.getpid())
        self.path = Path.cwd() / name
        self._document = describe_run(request, environ, moment)
        self._watch: UsageWatch | None = None
        self._is_refused = False

    @property
    def is_in_job(self) -> bool:
        """Whether a scheduler started this."""
        return self._document["job"] is not None

    def begin(self) -> None:
        """Write the first version, and watch from here on; raises where the place is wrong.

        In a job that has waited for its turn, and on a full disk, that is a warning.
        """
        try:
            refuse_place(self.path)
            self._write()
        except KedgeError as problem:
            is_full = isinstance(problem, NoSpace)
            if not is_full and "KEDGE_JOB_ID" not in self._environ:
                raise
            self._say("warn", f"cannot write the record: {problem.message}; the program runs all the same")
            self._is_refused = not is_full  # there may be space when the run ends
        else:
            if not self._request.record_to:
                self._say("tell", f"record: {self.path}")
        environ = self._environ
        describe = _ImageOnNode(self._request.image, environ)
        try:
            self._watch = UsageWatch(describe, has_gpus=self._request.has_gpus, environ=environ)
        except (KedgeError, OSError) as problem:  # no more processes
            self._say("warn", f"the record will not say what the run used: {problem}")

    def end(self, status: int, signalled: int | None = None) -> None:
        """Write the whole record; `status` is as a shell shows it. Raises nothing."""
        try:
            self._complete(status, signalled)
            if not self._is_refused:
                self._write()
        except KedgeError as problem:
            self._say("warn", f"cannot write the record: {problem.message}")
        except Exception as problem:  # as said above
            self._say("warn", f"cannot write the record: {type(problem).__name__}: {problem}")

    def _complete(self, status: int, signalled: int | None) -> None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # before the watcher counts among the children
        known: dict[str, Any] = self._watch.end() if self._watch is not None else {}
        gpus = known.get("gpus", [])
        largest = used.ru_maxrss * 1024
        document = self._document
        document["state"] = ENDED
        document["times"] |= {"ended": format_time(time.time()), "seconds": round(time.monotonic() - self._began, 3)}
        document["exit"] = {"status": status, "signal": signalled}
        document["image"] |= known.get("image", {})
        document["driver"] = known.get("driver")
        document["gpus"] = [{name: each for name, each in gpu.items() if name != "index"} for gpu in gpus]
        document["usage"] = {
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            "largest_process": largest,
            "memory_peak": max(known.get("memory_peak") or 0, largest),  # no sample may have seen a short run
            "group_memory_peak": _read_group_peak() if document["job"] else None,
            "processes_peak": known.get("processes_peak"),
            "samples": known.get("samples", 0),
            "problem": known.get("gpu_problem") or known.get("problem"),
        }

    def _write(self) -> None:
        write_atomically(self.path, encode_record(self._document), mode=_MODE)


class _ImageOnNode:
    """Says which image runs: looked at when the run begins, and at its end again if it had to be fetched first."""

    def __init__(self, image: str, environ: Mapping[str, str]) -> None:
        self._image = image
        self._environ = environ
        self._known: dict[str, Any] = {}

    def __call__(self) -> dict[str, Any]:
        if not (self._known.get("fingerprint") or self._known.get("digest")):
            self._known = describe_image(self._image, self._environ)
        return {"image": self._known}


def split_status(status: int) -> tuple[int, int | None]:
    """What waitpid said as a shell shows it, and the signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return 128 + number, int(signal.Signals(number)) if number in signal.valid_signals() else number
    return os.WEXITSTATUS(status), None


def _read_group_peak() -> int | None:
    """The most memory that the control group of this process ever used; of a job, that is the job's own."""
    for hierarchy in read_hierarchies():
        if hierarchy.version == 1 and "memory" not in hierarchy.controllers:
            continue
        for _, text in hierarchy.read_values(_PEAKS[hierarchy.version]):
            if text.isdecimal():
                return int(text)
    return None
