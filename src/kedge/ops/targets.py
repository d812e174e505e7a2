# SPDX-License-Identifier: BSD-3-Clause
"""What an image is judged against: a GPU that somebody names, a queue of a site, or this machine.

Nothing is guessed: what is not known stays empty, and a note says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kedge.compat.gpus import find_gpu, make_gpu
from kedge.compat.tables import Tables, load_tables
from kedge.compat.target import Gpu, Target
from kedge.compat.versions import order
from kedge.errors import SiteProblem, UnknownGpu, UsageError
from kedge.frozen import replace
from kedge.host.glibc import read_glibc
from kedge.host.gpu_probe import GpuProbe, ProbedGpu, probe_gpus
from kedge.host.mpi import find_mpi
from kedge.host.processor import read_processor
from kedge.model.nearest import propose
from kedge.model.site import Queue, Site
from kedge.ops.remembered import Remembered, recall_nodes
from kedge.ops.site import choose_site
from kedge.runtime.devices.driver import Card, Driver
from kedge.runtime.devices.libraries import find_libraries
from kedge.runtime.facts import HostFacts
from kedge.runtime.gather import gather_host
from kedge.settings import Settings

_DRIVER = re.compile(r"[Rr]?(\d{3}(?:\.\d{1,4}){0,3})")
_SAID = "as you name it"


def find_target(
    *,
    gpu: str | None = None,
    driver: str | None = None,
    site: str | None = None,
    environ: Mapping[str, str],
    settings: Settings,
    tables: Tables | None = None,
) -> Target:
    """The target that was asked for: `site` is SITE or SITE:QUEUE; what `gpu` and `driver` name holds over it.

    Without a site and a GPU it is this machine. Raises UnknownGpu, SiteProblem or UsageError for what is not known.
    """
    tables = load_tables() if tables is None else tables
    version = parse_driver(driver) if driver else ""
    named = tuple(find_gpu(word, tables) for word in gpu.split(",") if word.strip()) if gpu else ()
    if gpu and not named:
        raise UsageError("--gpu names no GPU", hint="write it as in '--gpu H200'")
    if site:
        target = describe_queue(site, environ, settings, tables)
    elif named:
        return _describe_named(named, version)
    else:
        target = describe_host(gather_host(environ), tables)
    return _put_over(target, named, version)


def parse_driver(text: str) -> str:
    """A driver's version as somebody writes it: 535.104.05, 535.104, 535 or R535."""
    match = _DRIVER.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"'{text[:80]}' is no version of an NVIDIA driver",
            hint="write it as nvidia-smi shows it, as in '--driver 535.104.05'; '--driver 535' names a branch",
        )
    return match[1]


def _describe_named(gpus: tuple[Gpu, ...], driver: str) -> Target:
    names = " and ".join(gpu.name for gpu in gpus)
    notes = () if driver else ("no driver was named: which one runs there is not known ('--driver VERSION' names it)",)
    return Target(
        title=f"{names} with driver {driver}" if driver else names,
        origin="named",
        gpus=gpus,
        has_gpus=True,
        driver=driver,
        driver_source=_SAID if driver else "",
        notes=notes,
    )


def _put_over(target: Target, gpus: tuple[Gpu, ...], driver: str) -> Target:
    """The same place with other GPUs, another driver: what was known of the one that is there does not hold then."""
    title = target.title
    if gpus:
        title += f" with {' and '.join(gpu.name for gpu in gpus)}"
        target = replace(target, gpus=gpus, has_gpus=True)
    if driver:
        title += f" {'and' if gpus else 'with'} driver {driver}"
        target = replace(target, driver=driver, driver_source=_SAID, cuda="")
    if not gpus and not driver:
        return target
    notes = tuple(note for note in target.notes if not (driver and "driver" in note))
    return replace(target, title=title, notes=notes, origin="named" if target.origin == "host" else target.origin)


# a queue of a site


def describe_queue(text: str, environ: Mapping[str, str], settings: Settings, tables: Tables) -> Target:
    """SITE:QUEUE, or SITE: its default queue where that has GPUs, else all queues that have them.

    What the profile does not say is taken from what jobs saw on nodes of the queue.
    """
    name, queue_name = split_queue(text)
    site = choose_site(settings, environ, name=name)
    queues = [_find_queue(site, queue_name)] if queue_name else _choose_queues(site)
    notes = [f"the queue '{queue.name}' is switched off" for queue in queues if queue.is_retired]
    if not queues:
        notes.append(f"the profile of {site.name} names no queue: what its nodes have is not known")
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
    """The processor and the C library that all nodes have that were seen; of every queue one must have been."""
    facts = [each.facts for queue in queues for each in seen[queue.name]]
    if not facts or not all(seen.values()):
        return target
    flags = [frozenset(each.cpu_features) for each in facts]
    return replace(
        target,
        architecture=target.architecture or _share(each.architecture for each in facts),
        cpu=_share(each.cpu for each in facts),
        cpu_features=frozenset.intersection(*flags) if all(flags) else None,
        glibc=_share(each.glibc for each in facts),
    )


def _share(values: Iterable[str]) -> str:
    """What all of them are; empty where they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def split_queue(text: str) -> tuple[str, str]:
    """`zih-alpha`, `alpha` of zih-alpha:alpha; a profile may also be named by its path."""
    head, colon, queue = text.rpartition(":")
    return (head, queue) if colon and "/" not in queue else (text, "")


def _find_queue(site: Site, name: str) -> Queue:
    queue = site.find_queue(name)
    if queue is None:
        known = [each.name for each in site.queues]
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
    live = [each for each in site.queues if not each.is_retired] or list(site.queues)
    return [each for each in live if _has_gpus([each])] or ([default] if default is not None else live)


def _has_gpus(queues: Sequence[Queue]) -> bool | None:
    """Whether one of them has GPUs; None where that is not known."""
    if any(queue.gpus_per_node or queue.gpu or queue.gpu_type for queue in queues):
        return True
    return False if queues and all(queue.gpus_per_node == 0 for queue in queues) else None


def _list_queue_gpus(queue: Queue, seen: Sequence[Remembered], tables: Tables, notes: list[str]) -> list[Gpu]:
    name, count = queue.gpu or queue.gpu_type, queue.gpus_per_node or 1
    if queue.gpus_per_node == 0:
        return []
    if not name:
        found = [make_gpu(model, tables) for each in seen for model in each.facts.gpus]
        if not found and _has_gpus([queue]):
            notes.append(f"the queue '{queue.name}' has GPUs, but of what kind is not known")
        return [replace(gpu, count=count) for gpu in found]
    try:
        return [replace(find_gpu(name, tables), count=count)]
    except UnknownGpu:
        notes.append(f"'{name}', the GPU of the queue '{queue.name}', is in no table: what runs on it is not known")
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
            "the driver of the nodes is not known: name it with '--driver VERSION', or run 'kedge doctor' there"
        )
        return "", ""
    versions = {version: source for each in known for version, source in each}
    oldest = min(versions, key=order)
    if len(versions) > 1:
        others = ", ".join(sorted(versions, key=order))
        notes.append(f"the nodes have different drivers ({others}): the oldest counts")
    return oldest, versions[oldest]


def _list_drivers(queue: Queue, seen: Sequence[Remembered]) -> list[tuple[str, str]]:
    """What a job saw lately is surer than a profile, and a profile is surer than what was seen long ago."""
    fresh = [(each.facts.driver, each.source) for each in seen if each.facts.driver and not each.is_stale]
    stale = [(each.facts.driver, each.source) for each in seen if each.facts.driver and each.is_stale]
    return fresh or ([(queue.driver, "the site's profile")] if queue.driver else stale)


# this machine


def describe_host(host: HostFacts, tables: Tables, probe: Callable[..., GpuProbe] = probe_gpus) -> Target:
    """This machine, from /proc, /sys and /dev; the driver is asked only where these do not say which GPUs there are."""
    driver = Driver(host.view)
    cards = driver.usable or driver.cards
    notes = _note_absence(driver)
    told = _ask_driver(host, driver, probe) if cards and not all(card.model for card in cards) else GpuProbe()
    version, source = _find_version(host, driver, told)
    if cards and not version:
        notes.append("the version of the driver is not known: neither the kernel nor its libraries say it")
    if told.gpus:
        gpus = _count_same(_describe_probed(gpu, tables) for gpu in told.gpus if not gpu.problem)
    else:
        gpus = _count_same(_describe_card(card, tables) for card in cards)
    notes += [f"the compute capability of '{gpu.name}' is not known" for gpu in gpus if not gpu.capability]
    processor, mpi = read_processor(machine=host.machine), find_mpi(host.environ)
    name = (host.view.read("/proc/sys/kernel/hostname", 256) or b"").decode(errors="replace").strip()
    return Target(
        title=f"this machine ({name})" if name else "this machine",
        gpus=gpus,
        has_gpus=bool(cards),
        driver=version,
        driver_source=source,
        cuda=told.cuda,
        architecture=processor.architecture,
        cpu_features=processor.features,
        cpu=processor.model,
        glibc=read_glibc(),
        mpi=mpi.title if mpi else "",
        notes=tuple(notes),
    )


def _note_absence(driver: Driver) -> list[str]:
    if not driver.cards:
        return ["this machine has no NVIDIA GPU: name the queue that is meant with '--on SITE:QUEUE', or a GPU"]
    if not driver.usable:
        return ["the GPUs of this machine are not for this process: it may not open their devices"]
    return []


def _ask_driver(host: HostFacts, driver: Driver, probe: Callable[..., GpuProbe]) -> GpuProbe:
    """A sandbox may hide /proc/driver; then the driver itself is asked, for a second at most."""
    return probe(library=find_libraries(host, driver.version).find("libnvidia-ml"))


def _find_version(host: HostFacts, driver: Driver, told: GpuProbe) -> tuple[str, str]:
    if driver.version:
        return driver.version, "the kernel's module"
    if told.driver:
        return told.driver, "the driver itself (NVML)"
    version = find_libraries(host, "").version if driver.cards else ""
    return version, "the driver's libraries" if version else ""


def _describe_card(card: Card, tables: Tables) -> Gpu:
    return make_gpu(card.model, tables) if card.model else Gpu(name="NVIDIA GPU")


def _describe_probed(gpu: ProbedGpu, tables: Tables) -> Gpu:
    made = make_gpu(gpu.name or "NVIDIA GPU", tables)
    return replace(made, capability=gpu.capability or made.capability, brand=gpu.brand or made.brand)


def _count_same(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each kind once, with how many there are."""
    return tuple(replace(gpu, count=count) for gpu, count in Counter(gpus).items())


def _join_queues(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Each kind once, with the most that a node of one queue has; boards that differ in memory alone are one kind."""
    kinds: dict[Gpu, list[Gpu]] = {}
    for gpu in gpus:
        kinds.setdefault(replace(gpu, count=1, memory=""), []).append(gpu)
    return tuple(
        replace(kind, count=max(gpu.count for gpu in same), memory=" or ".join(sorted({gpu.memory for gpu in same})))
        for kind, same in kinds.items()
    )
