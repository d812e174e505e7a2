# SPDX-License-Identifier: BSD-3-Clause
"""Where a profile and the scheduler disagree: profiles age, and a limit that moved makes good advice bad."""

from __future__ import annotations

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen
from kedge.cluster.memory import shorten_memory
from kedge.cluster.site import Queue, Site

_AMOUNTS = ("nodes", "cpus_per_node", "memory_per_node", "gpus_per_node", "max_nodes", "max_time")
_LOOSE = 0.1  # documents round: a difference of a tenth in memory or number of nodes is none


@frozen
class Difference:
    """One thing that the profile says otherwise than the scheduler."""

    queue: str
    key: str
    profile: str
    live: str

    def __str__(self) -> str:
        if not self.key:
            return f"{self.queue}: {self.profile or self.live}"
        return f"{self.queue}: {self.key} is {self.profile} in the profile, {self.live} in the scheduler"


def compare_sites(profile: Site, live: Site) -> list[Difference]:
    """What differs, queue by queue; what one of them does not know is no difference."""
    differences = []
    if profile.scheduler != live.scheduler:
        return [Difference(profile.name, "scheduler", profile.scheduler, live.scheduler)]
    for queue in profile.queues:
        other = live.find_queue(queue.name)
        if queue.resource:  # no queue of the scheduler's, but a resource
            continue
        if other is None and not queue.is_retired:
            differences.append(Difference(queue.name, "", "in the profile, not in the scheduler", ""))
        elif other is not None:
            differences += _compare_queues(queue, other)
    known = {each.name for each in profile.queues}
    if known:
        new = [each.name for each in live.queues if each.name not in known]
        differences += [Difference(name, "", "", "in the scheduler, not in the profile") for name in new]
    return differences


def _compare_queues(queue: Queue, other: Queue) -> list[Difference]:
    differences = []
    for key in _AMOUNTS:
        said, is_so = getattr(queue, key), getattr(other, key)
        if said is None or is_so is None or said == is_so:
            continue
        if key in ("nodes", "memory_per_node") and abs(said - is_so) <= _LOOSE * max(said, is_so):
            continue
        differences.append(Difference(queue.name, key, _show(key, said), _show(key, is_so)))
    return differences


def _show(key: str, value: int) -> str:
    if key == "max_time":
        return shorten_duration(value)
    return shorten_memory(value) if key == "memory_per_node" else str(value)
