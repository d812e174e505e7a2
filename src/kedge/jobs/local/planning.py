# SPDX-License-Identifier: BSD-3-Clause
"""Who may begin now, and what the others wait for: values in, values out.

Jobs begin in the order of their ids. What a job lacks is kept for it from then on, and what it would take of the rest
too: a later job may pass it only with what is left over, so that a large one does not wait for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kedge.base.frozen import frozen
from kedge.jobs.local.queue_files import ResourceAmount

# what a job waits for; the words are Slurm's
RESOURCES, PRIORITY, DEPENDENCY, NEVER = "Resources", "Priority", "Dependency", "DependencyNeverSatisfied"
ARRAY_LIMIT, BEGIN_TIME, TOO_LARGE = "JobArrayTaskLimit", "BeginTime", "BadConstraints"


@frozen
class Claim:
    """A job with tasks that wait."""

    id: int
    need: ResourceAmount  # of one task
    waiting: Sequence[int | None]
    room: int  # how many more of its tasks may run at once
    blocked: str = ""  # a reason why none may begin, whatever is free
    others: tuple[str, ...] = ()  # the jobs it waits for


@frozen
class Reason:
    """What a job waits for."""

    word: str
    lacks: tuple[str, ...] = ()  # of: cpus, memory, gpus
    others: tuple[str, ...] = ()  # the jobs that hold it, or that it depends on


@dataclass(slots=True)
class QueuePlan:
    """Who begins, in this order, and what the others wait for."""

    starts: list[tuple[int, int | None]] = field(default_factory=list)
    reasons: dict[int, Reason] = field(default_factory=dict)


def plan_turn(machine: ResourceAmount, held: Mapping[str, ResourceAmount], claims: Sequence[Claim]) -> QueuePlan:
    """`held` is what runs, by its id; `claims` are in the order of their ids."""
    plan = QueuePlan()
    free = machine
    for need in held.values():
        free = free.minus(need)
    ahead: str = ""  # the first job that waits for room
    for claim in claims:
        reason = _find_obstacle(claim, machine)
        for count, index in enumerate(claim.waiting if reason is None else ()):
            if count >= claim.room:
                reason = Reason(ARRAY_LIMIT)
            elif not claim.need.fits(free):
                lacks = _find_lacks(claim.need, free)
                blame = tuple(id for id, need in held.items() if any(getattr(need, resource) for resource in lacks))
                reason = Reason(PRIORITY, lacks, (ahead,)) if ahead else Reason(RESOURCES, lacks, blame)
                free = _reserve(free, claim.need, lacks)
                ahead = ahead or str(claim.id)
            if reason is not None:
                break
            plan.starts.append((claim.id, index))
            free = free.minus(claim.need)
        if reason is not None:
            plan.reasons[claim.id] = reason
    return plan


def _find_obstacle(claim: Claim, machine: ResourceAmount) -> Reason | None:
    if claim.blocked:
        return Reason(claim.blocked, others=claim.others)
    if not claim.need.fits(machine):
        return Reason(TOO_LARGE, _find_lacks(claim.need, machine))
    return None


def _find_lacks(need: ResourceAmount, free: ResourceAmount) -> tuple[str, ...]:
    return tuple(
        resource for resource in ("cpus", "memory", "gpus") if getattr(need, resource) > getattr(free, resource)
    )


def _reserve(free: ResourceAmount, need: ResourceAmount, lacks: Sequence[str]) -> ResourceAmount:
    left = free.minus(need)
    return ResourceAmount(
        **{resource: 0 if resource in lacks else getattr(left, resource) for resource in ("cpus", "memory", "gpus")}
    )
