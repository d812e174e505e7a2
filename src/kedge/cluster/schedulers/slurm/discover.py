# SPDX-License-Identifier: BSD-3-Clause
"""A profile from what Slurm's programs print: scontrol, sinfo and, where there are accounts, sacctmgr."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kedge.base.duration import parse_duration
from kedge.base.frozen import frozen, replace
from kedge.cluster.schedulers.backend import Ask
from kedge.cluster.schedulers.slurm import FACTS
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob

_PARTITIONS = ("scontrol", "-o", "show", "partition")
_NODES = ("sinfo", "-h", "-a", "-o", "%R|%D|%c|%m|%G|%N")  # one line for each kind of node in a partition
_HOSTS = ("scontrol", "-o", "show", "node")
_CONFIG = ("scontrol", "show", "config")
_QOS = ("sacctmgr", "-n", "-P", "show", "qos", "format=Name,MaxWall,MaxTRES,MinTRES")
_MEGABYTE = 1 << 20
_ARCHES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
_NOTHING = ("", "(null)", "N/A", "n/a", "NONE", "UNLIMITED", "INFINITE", "infinite", "0")
_FIELD = re.compile(r"(\w+)=(\S*)")


def _associations_argv(user: str) -> tuple[str, ...]:
    """The limits of a user: at some sites the partitions show none, and these are the true ones."""
    return ("sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=Account,Partition,MaxNodes,MaxWall")


def _has_accounts(config: str) -> bool:
    """Whether there is a database that sacctmgr can ask."""
    return _read_config(config).get("AccountingStorageType", "").endswith("slurmdbd")


@frozen
class SlurmTexts:
    """What the programs printed; empty where one failed."""

    partitions: str
    nodes: str = ""
    hosts: str = ""
    config: str = ""
    qos: str = ""
    associations: str = ""


@frozen
class _Kind:
    """Nodes of one kind."""

    count: int
    cpus: int
    memory: int
    gpus: tuple[tuple[str, int], ...]
    arch: str

    @property
    def gpu_count(self) -> int:
        return sum(count for _, count in self.gpus)


def discover(name: str, user: str, ask: Ask) -> Site:
    """The site that Slurm describes."""
    config = ask(_CONFIG, may_fail=True)
    has_accounts = _has_accounts(config)
    texts = SlurmTexts(
        partitions=ask(_PARTITIONS),
        nodes=ask(_NODES),
        hosts=ask(_HOSTS, may_fail=True),
        config=config,
        qos=ask(_QOS, may_fail=True) if has_accounts else "",
        associations=ask(_associations_argv(user), may_fail=True) if has_accounts else "",
    )
    return read_site(texts, name)


def read_site(texts: SlurmTexts, name: str) -> Site:
    """The site that such answers describe; partitions that are down are left out."""
    arches = _read_arches(texts.hosts)
    kinds = _read_kinds(texts.nodes, arches)
    limits = _read_qos(texts.qos)
    own = _read_associations(texts.associations)
    queues = []
    for fields in map(_read_fields, texts.partitions.splitlines()):
        partition = fields.get("PartitionName", "")
        if partition and fields.get("State", "UP") == "UP":
            queue = _make_queue(fields, kinds.get(partition, []))
            queue = _limit(queue, limits.get(fields.get("QoS", ""), {}))
            queues.append(_limit(queue, {**own.get("", {}), **own.get(partition, {})}))
    config = _read_config(texts.config)
    accounts = {line.split("|")[0] for line in texts.associations.splitlines() if line.split("|")[0]}
    title = config.get("ClusterName", "")
    return Site(
        name=name,
        title=f"{title or name} (Slurm {config.get('SLURM_VERSION', '')})".replace(" )", ")"),
        scheduler=FACTS.name,
        account=accounts.pop() if len(accounts) == 1 else "",
        queues=tuple(queues),
        mpi_type=_known(config.get("MpiDefault", "")).replace("none", ""),
        default_memory_per_cpu=_default_memory(texts.partitions, config),
        refuses=_find_refused(config),
    )


def _read_fields(line: str) -> dict[str, str]:
    return dict(_FIELD.findall(line))


def _known(text: str) -> str:
    return "" if text in _NOTHING else text


def parse_gres(text: str) -> tuple[tuple[str, int], ...]:
    """Types and numbers of GPUs in `gpu:a100:4(S:0-1),gpu:2,mps:400`; a type may be empty."""
    found = []
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        parts = [part for part in word.strip().split(":") if part != "no_consume"]
        if parts.pop(0) == "gpu":
            count = int(parts.pop()) if parts and parts[-1].isdecimal() else 1
            found.append((parts[0] if parts else "", count))
    return tuple(found)


def _read_kinds(text: str, arches: dict[str, str]) -> dict[str, list[_Kind]]:
    kinds: dict[str, list[_Kind]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 6 or not parts[1].isdecimal():
            continue
        cpus, memory = (int(part.rstrip("+")) if part.rstrip("+").isdecimal() else 0 for part in parts[2:4])
        first = re.split(r"[\[,]", parts[5])[0]
        arch = next((arch for node, arch in arches.items() if node.startswith(first)), "")
        kinds.setdefault(parts[0], []).append(_Kind(int(parts[1]), cpus, memory, parse_gres(parts[4]), arch))
    return kinds


def _read_arches(text: str) -> dict[str, str]:
    found = {}
    for fields in map(_read_fields, text.splitlines()):
        arch = _ARCHES.get(fields.get("Arch", ""), "")
        if arch and "NodeName" in fields:
            found[fields["NodeName"]] = arch
    return found


def _make_queue(fields: dict[str, str], kinds: list[_Kind]) -> Queue:
    """A partition; of several kinds of nodes the largest counts, because only what none can serve is refused."""
    types = {kind for nodes_alike in kinds for kind, _ in nodes_alike.gpus}
    arches = {nodes_alike.arch for nodes_alike in kinds}
    most = _parse_count(fields.get("MaxNodes", ""))
    lowest = _parse_count(fields.get("MinNodes", ""))
    return Queue(
        name=fields["PartitionName"],
        is_default=fields.get("Default") == "YES",
        nodes=_parse_count(fields.get("TotalNodes", "")),
        cpus_per_node=max((nodes_alike.cpus for nodes_alike in kinds), default=0) or None,
        memory_per_node=max((nodes_alike.memory for nodes_alike in kinds), default=0) * _MEGABYTE or None,
        gpus_per_node=max((nodes_alike.gpu_count for nodes_alike in kinds), default=None),
        gpu_type=next(iter(types)) if len(types) == 1 else "",
        gpu_types=tuple(sorted(types)) if len(types) > 1 and "" not in types else (),
        arch=arches.pop() if len(arches) == 1 else "",
        min_nodes=lowest if lowest and lowest > 1 else None,
        max_nodes=most,
        max_time=_parse_limit(fields.get("MaxTime", "")),
        default_time=_parse_limit(fields.get("DefaultTime", "")),
        is_whole_node=fields.get("OverSubscribe") == "EXCLUSIVE",
        note=_describe_kinds(kinds) if len(kinds) > 1 else "",
    )


def _describe_kinds(kinds: list[_Kind]) -> str:
    """Describe what is in a partition of several kinds of nodes."""
    words = []
    for kind in kinds:
        gpus = ", ".join(f"{count} × {name or 'GPU'}" for name, count in kind.gpus)
        words.append(f"{kind.count} × {kind.cpus} CPUs and {kind.memory} MB" + (f" with {gpus}" if gpus else ""))
    return "nodes differ: " + "; ".join(words)


def _parse_limit(text: str) -> int | None:
    """Seconds of a limit; `8:00:00`, `7-00:00:00`, `20:00` are Slurm's, `UNLIMITED` and `NONE` are none."""
    if not _known(text) or "LIMIT" in text:
        return None
    if re.fullmatch(r"[0-9]+:[0-9]{2}", text):
        text = f"0:{text}"
    try:
        return parse_duration(text)
    except InvalidJob:
        return None


def _parse_count(text: str) -> int | None:
    return int(text) if text.isdecimal() and int(text) else None


def _read_config(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _default_memory(partitions: str, config: dict[str, str]) -> int | None:
    """What a job gets per CPU that asks for no memory, where all partitions agree."""
    found = re.findall(r"\bDefMemPerCPU=(\d+)", partitions)
    is_everywhere = len(found) == partitions.count("PartitionName=")
    one = found[0] if is_everywhere and len(set(found)) == 1 else config.get("DefMemPerCPU", "")
    return int(one) * _MEGABYTE if one.isdecimal() and int(one) else None


def _find_refused(config: dict[str, str]) -> tuple[str, ...]:
    return ("arrays",) if config.get("MaxArraySize") in ("0", "1") else ()


def _read_tres(text: str) -> dict[str, int]:
    """`cpu=4,gres/gpu=1,mem=10G` without what has a unit."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name: int(value) for name, _, value in pairs if value.isdecimal()}


def _read_qos(text: str) -> dict[str, dict[str, int]]:
    """By quality of service: the limits it puts on every job."""
    found = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) < 4 or not parts[0]:
            continue
        most, least = _read_tres(parts[2]), _read_tres(parts[3])
        limits = {
            "max_time": _parse_limit(parts[1]),
            "max_nodes": most.get("node"),
            "max_gpus": most.get("gres/gpu"),
            "min_nodes": least.get("node"),
            "needs_gpus": int(least.get("gres/gpu", 0) > 0) or None,
        }
        found[parts[0]] = {name: value for name, value in limits.items() if value}
    return found


def _read_associations(text: str) -> dict[str, dict[str, int]]:
    """By partition, empty for all: the limits of the user; of several accounts the widest, None being no limit."""
    found: dict[str, list[tuple[int | None, int | None]]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) >= 4:
            found.setdefault(parts[1], []).append((_parse_count(parts[2]), _parse_limit(parts[3])))
    limits = {}
    for partition, rows in found.items():
        nodes, times = _widest(row[0] for row in rows), _widest(row[1] for row in rows)
        limits[partition] = {name: value for name, value in (("max_nodes", nodes), ("max_time", times)) if value}
    return limits


def _widest(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max(value for value in known if value is not None)


def _limit(queue: Queue, limits: dict[str, int]) -> Queue:
    """The queue with narrower limits."""
    least = limits.get("min_nodes", 0)
    return replace(
        queue,
        max_time=_narrow(queue.max_time, limits.get("max_time")),
        max_nodes=_narrow(queue.max_nodes, limits.get("max_nodes")),
        max_gpus=_narrow(queue.max_gpus, limits.get("max_gpus")),
        min_nodes=least if least > 1 else queue.min_nodes,
        needs_gpus=queue.needs_gpus or "needs_gpus" in limits,
    )


def _narrow(before: int | None, limit: int | None) -> int | None:
    return min(before, limit) if before and limit else before or limit
