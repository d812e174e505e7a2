# SPDX-License-Identifier: BSD-3-Clause
"""How much there is to share out: the processors, memory and GPUs that this process may use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.cluster.memory import shorten_memory
from kedge.errors import InvalidSetting, RequestRefused
from kedge.jobs.local.queue_files import LocalRequest, ResourceAmount
from kedge.system.host.gpu_devices import list_gpus
from kedge.system.host.limits import read_limits

_PLENTY = 1 << 60  # where nothing says how much memory there is


@frozen
class LocalNode:
    """This machine; `gpus` are their numbers as CUDA_VISIBLE_DEVICES takes them."""

    cpus: int
    memory: int
    gpus: tuple[str, ...]

    @property
    def size(self) -> ResourceAmount:
        """Return the amount of the whole host."""
        return ResourceAmount(self.cpus, self.memory, len(self.gpus))


def read_machine(environ: Mapping[str, str], devices: str = "/dev") -> LocalNode:
    """Read what this host has; KEDGE_LOCAL_GPUS says otherwise about GPUs: how many, or which, as `2,3`."""
    limits = read_limits()
    memory = limits.memory if limits.memory is not None else _PLENTY
    return LocalNode(limits.cpus, memory, _find_gpus(environ.get("KEDGE_LOCAL_GPUS", ""), devices))


def _find_gpus(chosen: str, devices: str) -> tuple[str, ...]:
    if chosen.isascii() and chosen.isdecimal() and int(chosen) < 1024:
        return tuple(map(str, range(int(chosen))))
    if chosen:
        gpus = tuple(chosen.split(","))
        if not all(re.fullmatch(r"[A-Za-z0-9/-]+", each) for each in gpus) or len(set(gpus)) < len(gpus):
            raise InvalidSetting(
                f"KEDGE_LOCAL_GPUS={chosen!r} is not valid",
                hint="set it to a number of GPUs or a list of them: 2 or 0,1",
            )
        return gpus
    return list_gpus(devices)


def refuse_too_much(request: LocalRequest, machine: LocalNode) -> None:
    """Raise RequestRefused for a job that could never begin here."""
    if request.gpus > len(machine.gpus):
        there = f"has {len(machine.gpus)}" if machine.gpus else "has none"
        raise RequestRefused(
            f"the job requests {count_things(request.gpus, 'GPU')}; this host {there}",
            hint=f"request {count_things(len(machine.gpus), 'GPU')}" if machine.gpus else "omit --gpus",
        )
    if request.cpus > machine.cpus:
        raise RequestRefused(
            f"the job requests {count_things(request.cpus, 'CPU')}; this host allows {machine.cpus}",
            hint=f"request at most {machine.cpus}: tasks times CPUs per task",
        )
    if (request.memory or 0) > machine.memory:
        there = shorten_memory(machine.memory >> 20 << 20)
        raise RequestRefused(
            f"the job requests {shorten_memory(request.memory or 0)} of memory; this host allows {there}",
            hint=f"request {there} or less",
        )
