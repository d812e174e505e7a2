# SPDX-License-Identifier: BSD-3-Clause
"""A profile from what Grid Engine's qconf prints: queues, hosts, parallel environments and resources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kedge.base.duration import parse_duration
from kedge.base.frozen import NOTHING, frozen
from kedge.cluster.memory import parse_memory
from kedge.cluster.schedulers.backend import Ask
from kedge.cluster.schedulers.gridengine import FACTS
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob

_ENVIRONMENTS = ("qconf", "-spl")
_RESOURCES = ("qconf", "-sc")
_HOSTS = ("qconf", "-sel")
_LOADS = ("qhost",)
_MOST_HOSTS = 64  # that are asked one by one: more of them are taken to be like these
# names that sites give to what counts GPUs and memory, the usual first
_GPU_NAMES = ("gpu", "gpus", "ngpus", "ngpu", "gpu_card", "cuda", "nvidia_gpu")
_MEMORY_NAMES = ("h_vmem", "mem_req", "memory", "mem", "virtual_free", "mem_free", "s_vmem")
_ARCHES = (("amd64", "amd64"), ("x64", "amd64"), ("x86", "amd64"), ("arm64", "arm64"), ("aarch64", "arm64"))


def _show_argv(option: str, name: str) -> tuple[str, ...]:
    """The call that shows one queue (-sq), host (-se), environment (-sp) or group of hosts (-shgrp_resolved)."""
    return ("qconf", option, name)


@frozen
class GridEngineTexts:
    """What the programs printed, by name where each thing is asked for alone; empty where one failed."""

    queues: dict[str, str]
    hosts: Mapping[str, str] = NOTHING
    groups: Mapping[str, str] = NOTHING
    environments: Mapping[str, str] = NOTHING
    resources: str = ""
    loads: str = ""


@frozen
class _Resource:
    name: str
    kind: str
    relation: str
    consumable: str


@frozen
class _Load:
    memory: int | None
    arch: str


def parse_names(text: str) -> list[str]:
    """The lines of `qconf -sql`, -spl or -sel."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("no ")]


def find_groups(text: str) -> list[str]:
    """The groups of hosts that a queue names."""
    return re.findall(r"@[\w.-]+", parse_settings(text).get("hostlist", ""))


def discover(name: str, _user: str, ask: Ask) -> Site:
    """The site that Grid Engine describes."""
    queues = {queue: ask(_show_argv("-sq", queue)) for queue in parse_names(ask(FACTS.queues))}
    groups = {group for text in queues.values() for group in find_groups(text)}
    environments = parse_names(ask(_ENVIRONMENTS, may_fail=True))
    hosts = parse_names(ask(_HOSTS, may_fail=True))[:_MOST_HOSTS]
    texts = GridEngineTexts(
        queues=queues,
        hosts={host: ask(_show_argv("-se", host), may_fail=True) for host in hosts},
        groups={group: ask(_show_argv("-shgrp_resolved", group), may_fail=True) for group in sorted(groups)},
        environments={name: ask(_show_argv("-sp", name), may_fail=True) for name in environments},
        resources=ask(_RESOURCES, may_fail=True),
        loads=ask(_LOADS, may_fail=True),
    )
    return read_site(texts, name)


def read_site(texts: GridEngineTexts, name: str) -> Site:
    """The site that such answers describe; what the parallel environments cannot do is in its notes."""
    resources = _read_resources(texts.resources)
    gpu = _find_resource(resources, _GPU_NAMES, {"INT", "DOUBLE", "RSMAP"})
    environments = {each: parse_settings(text).get("allocation_rule", "") for each, text in texts.environments.items()}
    loads = _read_loads(texts.loads)
    queues = tuple(_make_queue(queue, texts, gpu.name if gpu else "", loads) for queue in texts.queues)
    options = _find_options(resources, gpu, environments)
    return Site(
        name=name,
        title=f"{name} (Grid Engine)",
        scheduler=FACTS.name,
        queues=queues,
        gpu_directive=f"-l {gpu.name}={{count}}" if gpu else None,
        options=options,
        launcher="mpirun",
        interactive=FACTS.interactive[0],
        notes=_make_notes(resources, dict(options), environments),
    )


def parse_settings(text: str) -> dict[str, str]:
    """`name value` lines of qconf, with the continuations behind backslashes."""
    joined = re.sub(r"\\\n\s*", " ", text)
    pairs = (line.split(None, 1) for line in joined.splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and not pair[0].startswith("#")}


def _read_resources(text: str) -> dict[str, _Resource]:
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {
        row[0]: _Resource(row[0], row[2], row[3], row[5].upper()) for row in rows if len(row) >= 8 and row[4] != "NO"
    }


def _find_resource(resources: dict[str, _Resource], names: tuple[str, ...], kinds: set[str]) -> _Resource | None:
    """The first that can be used up: others only describe a host."""
    found = [resources[name] for name in names if name in resources]
    return next((each for each in found if each.consumable != "NO" and each.kind in kinds), None)


def _find_options(
    resources: dict[str, _Resource], gpu: _Resource | None, environments: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """What the backend has to know: its module says what each means."""
    memory = _find_resource(resources, _MEMORY_NAMES, {"MEMORY"})
    exclusive = next((resource.name for resource in resources.values() if resource.relation == "EXCL"), "")
    smp = [name for name, rule in environments.items() if rule == "$pe_slots"]
    options = {
        "smp_environment": min(smp, key=lambda each: (each != "smp", each), default=""),
        "mpi_environment": _find_pattern(environments),
        "gpu_per_slot": "yes" if gpu and gpu.consumable == "YES" else "",
        "memory_resource": memory.name if memory else "",
        "memory_per_slot": "" if memory is None else "yes" if memory.consumable == "YES" else "no",
        "exclusive": f"-l {exclusive}=true" if exclusive else "",
    }
    return tuple((name, value) for name, value in options.items() if value)


def _find_pattern(environments: Mapping[str, str]) -> str:
    """`ppn{tasks}` where ppn2 and ppn4 give so many slots on each host; the pattern that most of them follow."""
    patterns: dict[str, int] = {}
    for name, rule in environments.items():
        if rule.isdecimal() and re.search(rf"(?<!\d){rule}(?!\d)", name):
            pattern = re.sub(rf"(?<!\d){rule}(?!\d)", "{tasks}", name, count=1)
            patterns[pattern] = patterns.get(pattern, 0) + 1
    return max(patterns, key=lambda each: patterns[each], default="")


def _make_notes(
    resources: dict[str, _Resource], options: dict[str, str], environments: Mapping[str, str]
) -> tuple[str, ...]:
    notes = []
    if "mpi_environment" not in options and environments:
        notes.append(
            "no parallel environment gives a fixed number of slots on each host, so jobs on several nodes are refused;"
            " name one in options.mpi_environment"
        )
    types = [name for name in resources if re.match(r"rt_[A-Z]", name)]
    if types:
        notes.append(
            f"resources that may be types of nodes: {', '.join(types)}; the profile abci2 shows how to use them"
        )
    return tuple(notes)


def _make_queue(name: str, texts: GridEngineTexts, gpu: str, loads: dict[str, _Load]) -> Queue:
    settings = parse_settings(texts.queues[name])
    hosts = _list_hosts(settings.get("hostlist", ""), texts)
    values = [_read_values(parse_settings(texts.hosts.get(host, "")).get("complex_values", "")) for host in hosts]
    known = [loads[host] for host in hosts if host in loads]
    arches = {each.arch for each in known}
    gpus = [int(float(each.get(gpu, "0"))) for each in values] if gpu else []
    return Queue(
        name=name,
        nodes=len(hosts) or None,
        cpus_per_node=max(_list_numbers(settings.get("slots", "")), default=0) or None,
        memory_per_node=max((each.memory for each in known if each.memory), default=None),
        gpus_per_node=max(gpus, default=None),
        arch=arches.pop() if len(arches) == 1 else "",
        max_time=_find_limit(settings),
        is_interactive="INTERACTIVE" in settings.get("qtype", "INTERACTIVE"),
    )


def _list_hosts(text: str, texts: GridEngineTexts) -> list[str]:
    hosts: list[str] = []
    for word in text.split():
        hosts += texts.groups.get(word, "").split() if word.startswith("@") else [word]
    return [host for host in dict.fromkeys(hosts) if host != "NONE"]


def _read_values(text: str) -> dict[str, str]:
    """`slots=8,gpu=4(0 1 2 3)`."""
    pairs = (word.partition("=") for word in re.sub(r"\([^)]*\)", "", text).split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if re.fullmatch(r"[0-9.]+", value.strip())}


def _list_numbers(text: str) -> list[int]:
    """The values in `8,[host1=16],[@group=32]`."""
    return [int(each) for each in re.findall(r"(?:^|=)\s*(\d+)", text.replace(",", "\n"), re.MULTILINE)]


def _find_limit(settings: dict[str, str]) -> int | None:
    """The longest h_rt that any host of the queue allows."""
    values = re.findall(r"(?:^|=)\s*([\w:]+)", settings.get("h_rt", "").replace(",", "\n"), re.MULTILINE)
    found = []
    for value in values:
        try:
            found.append(int(value) if value.isdecimal() else parse_duration(value))
        except InvalidJob:
            return None  # INFINITY
    return max(found, default=None)


def _read_loads(text: str) -> dict[str, _Load]:
    """The table of `qhost`: name, architecture … and total memory."""
    lines = text.splitlines()
    headings = lines[0].split() if lines else []
    found = {}
    for line in lines[2:]:
        row = line.split()
        if len(row) != len(headings) or line.startswith(" "):
            continue
        cells = dict(zip(headings, row, strict=True))
        arch = next((oci for word, oci in _ARCHES if word in cells.get("ARCH", "")), "")
        found[cells.get("HOSTNAME", "")] = _Load(_parse_amount(cells.get("MEMTOT", "")), arch)
    return found


def _parse_amount(text: str) -> int | None:
    try:
        return parse_memory(text)
    except InvalidJob:
        return None
