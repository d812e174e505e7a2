# SPDX-License-Identifier: BSD-3-Clause
"""Queues of a site, as what an image is judged against: by the site's profile, and by what jobs saw there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kedge.base.frozen import replace
from kedge.base.nearest import propose
from kedge.base.versions import order
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.find_site import choose_site
from kedge.compat.tables.gpu_names import find_gpu, make_gpu
from kedge.compat.tables.load import Tables
from kedge.compat.target import Gpu, Target
from kedge.errors import SiteProblem, UnknownGpu
from kedge.jobs.seen_nodes import Remembered, recall_nodes
from kedge.system.settings import Settings


def find_queue_target(text: str, environ: Mapping[str, str], settings: Settings, tables: Tables) -> Target:
    """SITE:QUEUE, or SITE: its default queue where that has GPUs, else all queues that have them."""
    name, queue_name = split_queue(text)
    site = choose_site(settings, environ, name=name)
    queues = [_find_queue(site, queue_name)] if queue_name else _choose_queues(site)
    return describe_queues(site, queues, environ, settings, tables)


def describe_queues(
    site: Site, queues: Sequence[Queue], environ: Mapping[str, str], settings: Settings, tables: Tables
) -> Target:
    """Nodes of queues; what the profile does not say is taken from what jobs saw on them."""
    notes = [f"the queue '{queue.name}' is switched off" for queue in queues if queue.is_retired]
    if not queues:
        notes.append(f"the profile of {site.name} lists no queues, so the hardware of its nodes is unknown")
    if len(queues) > 1:
        names = ", ".join(f"'{queue.name}'" for queue in queues)
        notes.append(f"no queue was named: these are the GPUs of {names}")
    seen = {queue.name: recall_nodes(site.name, queue.name, environ, settings) for queue in queues}
    gpus = _join_queues(gpu for queue in queues for gpu in _list_queue_gpus(queue, seen[queue.name], tables, notes))
    driver, source = _find_queue_driver(queues, seen, notes)
    shown = f", queue {queues[0].name}" if len(queues) == 1 else ""
    target = Target(
        title=f"site {site.name}{shown}",
        origin="queue",
        gpus=gpus,
        has_gpus=bool(gpus) or _has_gpus(queues),
        driver=driver,
        driver_source=source,
        architecture=_share(queue.arch for queue in queues),
        notes=tuple(notes),
    )
    return _add_seen(target, queues, seen)


def _add_seen(target: Target, queues: Sequence[Queue], seen: Mapping[str, Sequence[Remembered]]) -> Target:
    """The CPU and the C library that all nodes have that were seen; of every queue one must have been."""
    facts = [node.facts for queue in queues for node in seen[queue.name]]
    if not facts or not all(seen.values()):
        return target
    flags = [frozenset(node.cpu_features) for node in facts]
    return replace(
        target,
        architecture=target.architecture or _share(node.architecture for node in facts),
        cpu=_share(node.cpu for node in facts),
        cpu_features=frozenset.intersection(*flags) if all(flags) else None,
        glibc=_share(node.glibc for node in facts),
    )


def _share(values: Iterable[str]) -> str:
    """What all of them are; empty where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else ""


def split_queue(text: str) -> tuple[str, str]:
    """`zih-alpha`, `alpha` of zih-alpha:alpha; a profile may also be named by its path."""
    head, colon, queue = text.rpartition(":")
    return (head, queue) if colon and "/" not in queue else (text, "")


def _find_queue(site: Site, name: str) -> Queue:
    queue = site.find_queue(name)
    if queue is None:
        known = [known_queue.name for known_queue in site.queues]
        raise SiteProblem(
            f"the site {site.name} has no queue '{name[:80]}'",
            context={"queues": ", ".join(known) or "none"},
            hint=propose(name, known) or f"'kedge site show {site.name}' lists its queues",
        )
    return queue


def _choose_queues(site: Site) -> list[Queue]:
    """What stands for a site of which no queue was named."""
    default = site.default_queue
    if default is not None and _has_gpus([default]):
        return [default]
    live = [queue for queue in site.queues if not queue.is_retired] or list(site.queues)
    return [queue for queue in live if _has_gpus([queue])] or ([default] if default is not None else live)


def _has_gpus(queues: Sequence[Queue]) -> bool | None:
    """Whether one of them has GPUs; None where that is unknown."""
    if any(queue.gpus_per_node or queue.gpu or queue.gpu_type for queue in queues):
        return True
    return False if queues and all(queue.gpus_per_node == 0 for queue in queues) else None


def _list_queue_gpus(queue: Queue, seen: Sequence[Remembered], tables: Tables, notes: list[str]) -> list[Gpu]:
    name, count = queue.gpu or queue.gpu_type, queue.gpus_per_node or 1
    if queue.gpus_per_node == 0:
        return []
    if not name:
        gpus = [make_gpu(model, tables) for node in seen for model in node.facts.gpus]
        if not gpus and _has_gpus([queue]):
            notes.append(f"the queue '{queue.name}' has GPUs, but their model is unknown")
        return [replace(gpu, count=count) for gpu in gpus]
    try:
        return [replace(find_gpu(name, tables), count=count)]
    except UnknownGpu:
        notes.append(f"'{name}', the GPU of the queue '{queue.name}', is in no table: what runs on it is unknown")
        return [Gpu(name=name, count=count)]


def _find_queue_driver(
    queues: Sequence[Queue], seen: Mapping[str, Sequence[Remembered]], notes: list[str]
) -> tuple[str, str]:
    """The driver of the nodes, and where that is known from; the oldest where several are known."""
    with_gpus = [queue for queue in queues if _has_gpus([queue]) or seen[queue.name]]
    known = [_list_drivers(queue, seen[queue.name]) for queue in with_gpus]
    if not known:
        return "", ""
    if not all(known):
        notes.append(
            "the driver of the nodes is unknown: give it with '--driver VERSION', or run 'kedge doctor' in a job there"
        )
        return "", ""
    versions = {version: source for drivers in known for version, source in drivers}
    oldest = min(versions, key=order)
    if len(versions) > 1:
        others = ", ".join(sorted(versions, key=order))
        notes.append(f"the nodes have different drivers ({others}): the oldest counts")
    return oldest, versions[oldest]


def _list_drivers(queue: Queue, seen: Sequence[Remembered]) -> list[tuple[str, str]]:
    """What a job saw lately is surer than a profile, and a profile is surer than what was seen long ago."""
    fresh = [(node.facts.driver, node.source) for node in seen if node.facts.driver and not node.is_stale]
    stale = [(node.facts.driver, node.source) for node in seen if node.facts.driver and node.is_stale]
    return fresh or ([(queue.driver, "the site's profile")] if queue.driver else stale)


def _join_queues(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each kind once, with the most that a node of one queue has; boards that differ in memory alone are one kind."""
    kinds: dict[Gpu, list[Gpu]] = {}
    for gpu in gpus:
        kinds.setdefault(replace(gpu, count=1, memory=""), []).append(gpu)
    return tuple(
        replace(kind, count=max(gpu.count for gpu in same), memory=" or ".join(sorted({gpu.memory for gpu in same})))
        for kind, same in kinds.items()
    )
