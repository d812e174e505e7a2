# SPDX-License-Identifier: BSD-3-Clause
"""Watches what a run uses while it lasts: memory of its processes, memory and load of its GPUs.

A child does it, because a broken driver never answers. It writes what it knows into memory that both share, so that
nothing has to be waited for: what hangs is killed, and what was known until then counts.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import time
from collections.abc import Callable, Mapping

from kedge.system.bounded_children import leave_parent
from kedge.system.nvml import GpuMeter, NvmlError, ask_nvml
from kedge.system.process_tree import find_family
from kedge.system.spawn import fork_process

TYPE_CHECKING = False  # as typing has it, whose import costs every recorded run
if TYPE_CHECKING:
    from typing import Any

_SLOT = 1 << 18  # bytes for one state of what is known; two of them, written in turn
_FIRST, _PAUSE = 0.1, 1.0  # seconds between two samples, at the beginning and later
_SHARE = 0.01  # of one CPU that the samples may cost
_PATIENCE = 5.0  # seconds that the last sample may take, on a node whose processors are all busy
_MOMENT = 0.1  # seconds until one that was killed is gone, unless it hangs in the kernel
_END = signal.SIGTERM


class UsageWatch:
    """A child that samples the descendants of this process; `describe` adds facts, and may take its time."""

    def __init__(
        self, describe: Callable[[], Mapping[str, object]], *, has_gpus: bool, environ: Mapping[str, str]
    ) -> None:
        self._memory = mmap.mmap(-1, 2 * _SLOT)
        self._child = 0
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {_END})  # it may be told to end before it begins
        try:
            self._child = fork_process()
        finally:
            if self._child:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._child == 0:
            try:
                leave_parent(parent)
                _Watcher(self._memory, parent, describe, environ).run(has_gpus=has_gpus)
            finally:
                os._exit(0)

    def end(self) -> dict[str, Any]:
        """Take the last sample, and tell all that is known; waits for that a moment at most."""
        with contextlib.suppress(OSError):
            os.kill(self._child, _END)
        if not self._wait(_PATIENCE):
            with contextlib.suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
            self._wait(_MOMENT)
        return max((self._read(slot) for slot in (0, 1)), key=lambda known: known.get("samples", -1))

    def _wait(self, seconds: float) -> bool:
        """Whether the watcher ends within a time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if os.waitpid(self._child, os.WNOHANG)[0]:
                    return True
            except ChildProcessError:
                return True
            time.sleep(0.002)
        return False

    def _read(self, slot: int) -> dict[str, Any]:
        """Read one slot; empty where its writer was killed half-way."""
        raw = self._memory[slot * _SLOT : (slot + 1) * _SLOT].rstrip(b"\0")
        try:
            known = json.loads(raw)
        except ValueError:
            return {}
        return known if isinstance(known, dict) else {}


class _Watcher:
    """The child: all that it found so far."""

    def __init__(
        self,
        memory: mmap.mmap,
        parent: int,
        describe: Callable[[], Mapping[str, object]],
        environ: Mapping[str, str],
    ) -> None:
        self._memory = memory
        self._parent = parent
        self._describe = describe
        self._environ = environ
        self._known: dict[str, Any] = {"samples": 0, "memory_peak": 0, "processes_peak": 0}
        self._meter: GpuMeter | None = None
        self._gpus: list[dict[str, Any]] = []
        self._sums: list[list[int]] = []  # for each GPU: readings of its load added up, and how many

    def run(self, *, has_gpus: bool) -> None:
        """Sample until told to end, and once more then."""
        with contextlib.suppress(OSError):
            os.nice(5)
        self._sample()
        self._add_facts()
        if has_gpus:
            self._find_gpus()
        pause, is_over = _FIRST, False
        while not is_over:
            is_over = signal.sigtimedwait({_END}, pause) is not None
            began = time.monotonic()
            self._sample()
            pause = max(min(pause * 2, _PAUSE), (time.monotonic() - began) / _SHARE)
        self._add_facts()

    def _add_facts(self) -> None:
        try:
            self._known |= self._describe()
        except Exception as problem:  # the run goes on, whatever is wrong with its image
            self._known["problem"] = f"{type(problem).__name__}: {problem}"[:500]
        self._write()

    def _find_gpus(self) -> None:
        try:
            answer = ask_nvml()
            self._meter = GpuMeter()
        except NvmlError as problem:
            self._known["gpu_problem"] = str(problem)[:500]
            return
        chosen = choose_visible([gpu.get("uuid") or "" for gpu in answer["gpus"]], self._environ)
        self._gpus = [
            {"index": number, **{name: gpu.get(name) for name in ("name", "uuid", "memory", "capability")}}
            for number, gpu in enumerate(answer["gpus"])
            if number in chosen
        ]
        self._sums = [[0, 0] for _ in self._gpus]
        self._known |= {"driver": answer["driver"], "cuda": answer["cuda"], "gpus": self._gpus}

    def _sample(self) -> None:
        family = [process for process in find_family(self._parent) if process.pid != os.getpid()]
        self._raise_peak("memory_peak", sum(process.resident for process in family))
        self._raise_peak("processes_peak", len(family))
        if self._meter is not None:
            self._sample_gpus(self._meter)
        self._known["samples"] += 1
        self._write()

    def _sample_gpus(self, meter: GpuMeter) -> None:
        read = meter.read()
        for gpu, total in zip(self._gpus, self._sums, strict=True):
            used, busy = read[gpu["index"]] if gpu["index"] < len(read) else (None, None)
            if used is not None:
                gpu.setdefault("memory_before", used)
                gpu["memory_peak"] = max(gpu.get("memory_peak", 0), used)
            if busy is not None:
                total[0] += busy
                total[1] += 1
                gpu["utilisation_peak"] = max(gpu.get("utilisation_peak", 0), busy)
                gpu["utilisation_mean"] = round(total[0] / total[1], 1)

    def _raise_peak(self, name: str, value: int) -> None:
        self._known[name] = max(self._known[name], value)

    def _write(self) -> None:
        """Into the slot that is not the newest, so that one of the two is always whole."""
        data = json.dumps(self._known).encode()
        if len(data) <= _SLOT:
            start = self._known["samples"] % 2 * _SLOT
            self._memory[start : start + _SLOT] = data.ljust(_SLOT, b"\0")


def choose_visible(uuids: list[str], environ: Mapping[str, str]) -> set[int]:
    """Return the numbers of the GPUs that CUDA_VISIBLE_DEVICES names; all, where it is unset or names none."""
    words = environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    chosen = {int(word) for word in words if word.isascii() and word.isdecimal() and int(word) < len(uuids)}
    chosen |= {
        number for number, uuid in enumerate(uuids) for word in words if word.startswith("GPU-") and word in uuid
    }
    return chosen or set(range(len(uuids)))
