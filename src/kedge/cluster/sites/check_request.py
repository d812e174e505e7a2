# SPDX-License-Identifier: BSD-3-Clause
"""Whether a site can serve a request, in which queue, and what the nearest request is that it could."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen, replace
from kedge.cluster.job import Job
from kedge.cluster.job_fields import BY_NAME
from kedge.cluster.schedulers.choose import find_facts, find_language
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.rules import RULES, QueueRequest, UnmetRequest, check_paths, count_memory, spread_tasks
from kedge.errors import RequestRefused

_ROUNDS = 32  # of mending; every rule mends itself at once, so a few are enough
_OTHER_QUEUE = 3  # what it costs to be sent to a queue that was not asked for


@frozen
class Checked:
    """A request that will be served: the job with what the site fills in, and what its user should know."""

    job: Job
    warnings: tuple[str, ...] = ()  # something is likely to go wrong
    notes: tuple[str, ...] = ()  # something was asked for that comes without asking


@frozen
class _Outcome:
    """A request after all rules of one queue: `job` is None where the queue is no use."""

    queue: Queue
    job: Job | None
    reasons: tuple[str, ...]
    cost: int

    @property
    def is_clean(self) -> bool:
        return not self.reasons


def check_request(
    job: Job,
    site: Site,
    *,
    interactive: bool = False,
    environ: Mapping[str, str] | None = None,
    paths: Sequence[str] = (),
    architecture: str = "",
) -> Checked:
    """The job with its queue filled in; RequestRefused with the nearest request where the site cannot serve it.

    `paths` are absolute ones that compute nodes have to see, `architecture` is the image's where it is known.
    """
    request = QueueRequest(
        job=job,
        site=site,
        queue=Queue(""),
        is_interactive=interactive,
        environ=environ or {},
        paths=tuple(paths),
        architecture=architecture,
    )
    asked = _list_asked(request)
    outcomes = [_settle(replace(request, queue=queue)) for queue in asked]
    clean = next((outcome for outcome in outcomes if outcome.is_clean), None)
    if clean is not None and clean.job is not None:
        return _finish(clean.job, site, clean.queue)
    nearest = _find_nearest(request, outcomes)
    raise _refuse(request, outcomes[0] if job.queue or nearest is None else nearest, nearest)


def nearest_request(
    job: Job,
    site: Site,
    *,
    interactive: bool = False,
    environ: Mapping[str, str] | None = None,
    paths: Sequence[str] = (),
    architecture: str = "",
) -> Job | None:
    """The job itself where the site serves it, else the nearest that it serves; None where there is none."""
    request = QueueRequest(
        job=job,
        site=site,
        queue=Queue(""),
        is_interactive=interactive,
        environ=environ or {},
        paths=tuple(paths),
        architecture=architecture,
    )
    try:
        asked = _list_asked(request)
    except RequestRefused:
        asked = []
    outcomes = [_settle(replace(request, queue=queue)) for queue in asked]
    if any(outcome.is_clean for outcome in outcomes):
        return job
    nearest = _find_nearest(request, outcomes)
    return nearest.job if nearest is not None else None


def _list_asked(request: QueueRequest) -> list[Queue]:
    """The queues to try, the best first: those the job names, or all that are in use."""
    job, site = request.job, request.site
    if not site.queues:
        return [Queue(job.queue)]
    if job.queue:
        return [_find_named(name.strip(), request) for name in job.queue.split(",")]
    return _list_usable(request)


def _list_usable(request: QueueRequest) -> list[Queue]:
    """The queues of a site, best first: with GPUs for who wants some, the default, little that is not asked for."""
    job, site = request.job, request.site
    usable = [each for each in site.queues if not each.is_retired] or list(site.queues)

    def rank(queue: Queue) -> tuple[bool, int, bool, bool, int]:
        there, wanted = queue.gpus_per_node, job.gpus_per_node or 0
        other_kind = 1 if there is None else 2 * (bool(there) != job.wants_gpus)
        waste = (there or 0) - wanted if "gpus" in site.refuses else 0
        is_wanted = request.is_interactive and queue.name == site.interactive_queue
        return (not is_wanted, other_kind, not queue.is_default, waste < 0, abs(waste))

    return sorted(usable, key=rank)


def _find_named(name: str, request: QueueRequest) -> Queue:
    site = request.site
    queue = site.find_queue(name.partition("@")[0])
    if queue is not None:
        return queue
    reservations = find_facts(site.scheduler).reservation_queue
    if request.job.reservation or (reservations and re.fullmatch(reservations, name)):
        return Queue(name)
    from kedge.base.nearest import propose  # late: only for a mistake

    known = [each.name for each in site.queues if not each.is_retired] or [each.name for each in site.queues]
    nearest = _find_nearest(replace(request, job=replace(request.job, queue="")), [])
    best = f"; nearest request: {describe_changes(request.job, nearest.job)}" if nearest and nearest.job else ""
    raise RequestRefused(
        f"{site.name} has no {find_facts(site.scheduler).queue_word} '{name}'",
        context={"site": site.name, "queue": name, "queues": ", ".join(known)},
        hint=(propose(name, known) or f"it has: {', '.join(known)}")
        + best
        + "; if it is new, write a current profile: kedge site init",
    )


def _settle(request: QueueRequest) -> _Outcome:
    """Mend a request until the queue serves it."""
    request = replace(request, job=spread_tasks(request))
    hidden = check_paths(request)
    first = tuple(finding.reason for finding in (*_apply_rules(request), *([hidden] if hidden else [])))
    job, cost = (hidden.better, hidden.cost) if hidden else (request.job, 0)
    for _ in range(_ROUNDS):
        if job is None:
            break
        finding = next(iter(_apply_rules(replace(request, job=job))), None)
        if finding is None:
            return _Outcome(request.queue, job, first, cost)
        job, cost = finding.better, cost + finding.cost
    return _Outcome(request.queue, None, first, cost)


def _apply_rules(request: QueueRequest) -> list[UnmetRequest]:
    return [finding for rule in RULES if (finding := rule(request)) is not None]


def _find_nearest(request: QueueRequest, outcomes: Sequence[_Outcome]) -> _Outcome | None:
    """The cheapest way to be served, in the queues that were tried or in another one."""
    named = {each.queue.name for each in outcomes}
    others = []
    for queue in _list_usable(request) if request.site.queues else []:
        if queue.name not in named:
            outcome = _settle(replace(request, queue=queue))
            cost = outcome.cost + (_OTHER_QUEUE if request.job.queue else 0)
            others.append(replace(outcome, cost=cost))
    served = [each for each in (*outcomes, *others) if each.job is not None]
    if not served:
        return None
    best = min(served, key=lambda each: each.cost)
    assert best.job is not None
    # the queue is part of what is proposed where it was named, or where another would be taken
    return replace(best, job=replace(best.job, queue=best.queue.name or best.job.queue))


def _refuse(request: QueueRequest, outcome: _Outcome, nearest: _Outcome | None) -> RequestRefused:
    job, site = request.job, request.site
    context = {"site": site.name, **({"queue": outcome.queue.name} if outcome.queue.name else {})}
    if job.gpu_type:
        context["GPUs there"] = _list_gpus(site)
    if nearest is None or nearest.job is None:
        hint = _hint_without_nearest(request)
    else:
        changes = describe_changes(job, nearest.job)
        context["nearest"] = changes
        hint = f"try: {changes}" + (" (copy there what it needs)" if check_paths(request) else "")
    return RequestRefused("; ".join(outcome.reasons), context=context, hint=hint)


def _list_gpus(site: Site) -> str:
    """The types to choose from: `alpha: a100; ml: v100`."""
    known = {queue.name: ", ".join(queue.gpu_types) or queue.gpu_type or queue.gpu for queue in site.queues}
    return "; ".join(f"{name}: {types}" for name, types in known.items() if types)


def _hint_without_nearest(request: QueueRequest) -> str:
    arches = sorted({queue.arch for queue in request.site.queues if queue.arch})
    if request.architecture and arches and request.architecture not in arches:
        return f"pull the image for the nodes there: kedge pull --arch {arches[0]} …"
    return "kedge site show lists what the site has; --site chooses another"


def describe_changes(job: Job, nearest: Job) -> str:
    """What to say differently on the command line, to get from one request to the other."""
    words, dropped = [], []
    for name, field in BY_NAME.items():
        before, after = getattr(job, name), getattr(nearest, name)
        if before == after:
            continue
        if after in (None, "", False, ()):
            dropped.append(field.flag)
        else:
            words.append(field.flag if after is True else f"{field.flag} {_show_value(field.kind, after)}")
    without = [f"without {' and '.join(dropped)}"] if dropped else []
    return ", ".join([*([" ".join(words)] if words else []), *without])


def _show_value(kind: str, value: object) -> str:
    if isinstance(value, int) and kind == "duration":
        return shorten_duration(value)
    if isinstance(value, int) and kind == "memory":
        from kedge.cluster.memory import shorten_memory  # late: few requests come to it

        return shorten_memory(value)
    return shlex.quote(str(value))


def _finish(job: Job, site: Site, queue: Queue) -> Checked:
    """Fill in what the site wants said, and take out what it gives unasked."""
    warnings, notes = _warn(job, site, queue), []
    filled = replace(job, queue=job.queue or queue.name, account=job.account or site.account)
    filled = replace(filled, gpu_type=queue.spell_gpu_type(job.gpu_type))
    if "nodes" in site.requires and filled.nodes is None:
        filled = replace(filled, nodes=filled.node_count)
    if "tasks" in site.requires and filled.tasks is None and filled.tasks_per_node is None:
        filled = replace(filled, tasks=filled.task_count)
    if "time" in site.requires and filled.time is None:
        filled = replace(filled, time=queue.default_time)
    there = queue.gpus_per_node or 0
    if "gpus" in site.refuses and job.wants_gpus:
        notes.append(f"{queue.name} allocates whole nodes ({there} GPUs each); --gpus is not passed on")
    if "memory" in site.refuses and count_memory(job):
        from kedge.cluster.memory import shorten_memory  # late: few requests come to it

        size = shorten_memory(queue.memory_per_node or 0)
        notes.append(f"{queue.name} allocates whole nodes ({size} of memory each); --mem is not passed on")
        filled = replace(filled, memory=None, memory_per_cpu=None, memory_per_gpu=None)
    if "exclusive" in site.refuses and job.exclusive:
        notes.append(f"{queue.name} allocates whole nodes; --exclusive is not passed on")
        filled = replace(filled, exclusive=False)
    return Checked(filled, tuple(warnings), tuple(notes))


def _warn(job: Job, site: Site, queue: Queue) -> list[str]:
    warnings = []
    if queue.is_retired:
        reason = next(iter(site.notes), "the profile is for documents that still name it")
        warnings.append(f"{queue.name} at {site.name} is switched off: {reason}")
    if site.default_memory_per_cpu and not count_memory(job) and "memory" not in site.refuses:
        from kedge.cluster.memory import shorten_memory  # late: few requests come to it

        size = shorten_memory(site.default_memory_per_cpu)
        warnings.append(f"jobs without --mem get {size} per CPU at {site.name}: add --mem")
    refused = [text.strip() for text in job.directives if _is_refused(text.strip(), site)] if site.refuses else []
    warnings += [f"{site.name} refuses or advises against your directive '{text}'" for text in refused]
    return warnings


def _is_refused(directive: str, site: Site) -> bool:
    """Whether a directive asks for what the site refuses. It is only warned of: directives are the user's last word."""
    language = find_language(site.scheduler)
    options = {option for word in site.refuses for option in language.refusable.get(word, ())}
    words = directive.removeprefix(language.facts.prefix).split()
    return any(option.name in options for option in language.cut_all(words))
