# SPDX-License-Identifier: BSD-3-Clause
"""What a job asks of the queue, as its file `job.json` keeps it."""

from __future__ import annotations

import json

from kedge.base.frozen import as_dict, frozen, list_names
from kedge.cluster.job import JobArray


@frozen
class ResourceAmount:
    """An amount of this machine."""

    cpus: int = 1
    memory: int = 0  # bytes; 0: nothing was asked for, and nothing limits it
    gpus: int = 0

    def fits(self, free: ResourceAmount) -> bool:
        """Whether there is that much free."""
        return self.cpus <= free.cpus and self.memory <= free.memory and self.gpus <= free.gpus

    def minus(self, other: ResourceAmount) -> ResourceAmount:
        """Return what is left after another amount is taken, never less than nothing."""
        return ResourceAmount(
            max(0, self.cpus - other.cpus), max(0, self.memory - other.memory), max(0, self.gpus - other.gpus)
        )


@frozen
class LocalRequest:
    """One job; empty and None mean that nothing was asked for."""

    name: str = "kedge"
    arguments: tuple[str, ...] = ()  # of the script, or the whole command of an interactive job
    is_interactive: bool = False
    directory: str = "/"
    output: str = ""
    error: str = ""  # empty: with the output
    umask: int = 0o022
    user: str = ""
    submitted: float = 0.0
    cpus: int = 1
    memory: int | None = None
    gpus: int = 0
    is_exclusive: bool = False
    time: int | None = None  # seconds
    array: str = ""
    after: tuple[tuple[str, str], ...] = ()  # kind of dependency, and the id: `12` or `12_3`
    begin: float | None = None

    def encode(self) -> bytes:
        """JSON that a person can read."""
        return json.dumps(as_dict(self), indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> LocalRequest:
        """Read what `encode` wrote; raises ValueError for anything else. Fields of a later version are passed over."""
        table = json.loads(data)
        if not isinstance(table, dict):
            raise ValueError("not a table")
        known = {name: table[name] for name in list_names(cls) if name in table}
        known["arguments"] = tuple(map(str, known.get("arguments", ())))
        known["after"] = tuple((str(kind), str(id)) for kind, id in known.get("after", ()))
        return cls(**known)

    @property
    def indices(self) -> list[int | None]:
        """Return the indices of its tasks; one None for a job that is no array."""
        return list(JobArray.parse(self.array).indices) if self.array else [None]

    @property
    def limit(self) -> int:
        """How many of its tasks may run at once."""
        return (JobArray.parse(self.array).limit if self.array else None) or 1 << 30

    def need(self, machine: ResourceAmount) -> ResourceAmount:
        """Return what one task takes; an exclusive one takes all CPUs, so that nothing else begins."""
        return ResourceAmount(machine.cpus if self.is_exclusive else self.cpus, self.memory or 0, self.gpus)
