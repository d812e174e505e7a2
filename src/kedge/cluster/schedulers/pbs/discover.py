# SPDX-License-Identifier: BSD-3-Clause
"""A profile from what PBS prints: `qstat -Qf`, `qstat -Bf` and `pbsnodes -a`."""

from __future__ import annotations

import re

from kedge.base.duration import parse_duration
from kedge.base.frozen import frozen
from kedge.cluster.memory import parse_memory
from kedge.cluster.schedulers.backend import Ask
from kedge.cluster.schedulers.pbs import FACTS
from kedge.cluster.site import Queue, Site
from kedge.errors import InvalidJob

_QUEUES = FACTS.queues
_SERVER = ("qstat", "-Bf")
_NODES = ("pbsnodes", "-a")


@frozen
class PbsTexts:
    """What the programs printed; empty where one failed."""

    queues: str
    server: str = ""
    nodes: str = ""


def discover(name: str, _user: str, ask: Ask) -> Site:
    """The site that PBS describes."""
    texts = PbsTexts(ask(_QUEUES), ask(_SERVER, may_fail=True), ask(_NODES, may_fail=True))
    return read_site(texts, name)


def read_site(texts: PbsTexts, name: str) -> Site:
    """The site that such answers describe; queues that take no jobs, or none from users, are left out."""
    server = _read_blocks(texts.server, r"Server:\s*(\S+)")
    attributes = next(iter(server.values()), {})
    nodes = _read_blocks(texts.nodes, r"(\S+)\s*$")
    queues = [
        _make_queue(queue, fields, nodes, is_default=attributes.get("default_queue") == queue)
        for queue, fields in _read_blocks(texts.queues, r"Queue:\s*(\S+)").items()
        if fields.get("enabled", "True") == "True" and fields.get("from_route_only", "False") != "True"
    ]
    version = attributes.get("pbs_version", "")
    return Site(
        name=name,
        title=f"{next(iter(server), name)} (PBS{f' {version}' if version else ''})",
        scheduler=FACTS.name,
        queues=tuple(queues),
        launcher="mpirun",
        interactive=FACTS.interactive[0],
    )


def _read_blocks(text: str, heading: str) -> dict[str, dict[str, str]]:
    """Things that begin at the margin, with `name = value` lines below them; longer values go on after a tab."""
    blocks: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        match = re.match(heading, line)
        if match and not line[:1].isspace():
            fields = blocks.setdefault(match.group(1), {})
        elif line.startswith("\t") and last:
            fields[last] += line.strip()
        elif " = " in line:
            last, _, value = (part.strip() for part in line.partition(" = "))
            fields[last] = value
    return blocks


def _make_queue(name: str, fields: dict[str, str], nodes: dict[str, dict[str, str]], *, is_default: bool) -> Queue:
    own = _list_nodes(name, fields, nodes)
    least = _read_count(fields.get("resources_min.nodect"))
    return Queue(
        name=name,
        is_default=is_default,
        nodes=len(own) or None,
        cpus_per_node=_largest(own, "ncpus") or _read_count(fields.get("default_chunk.ncpus")),
        memory_per_node=max((_read_memory(node.get("resources_available.mem", "")) or 0 for node in own), default=0)
        or None,
        gpus_per_node=_largest(own, "ngpus") if own else None,
        min_nodes=least if least and least > 1 else None,
        max_nodes=_read_count(fields.get("resources_max.nodect")),
        max_gpus=_read_count(fields.get("resources_max.ngpus")),
        max_time=_read_time(fields.get("resources_max.walltime")),
        default_time=_read_time(fields.get("resources_default.walltime")),
        is_whole_node=bool(own) and all(node.get("sharing") in ("force_excl", "force_exclhost") for node in own),
    )


def _list_nodes(name: str, fields: dict[str, str], nodes: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """The nodes of a queue: those tied to it, those with its label, else those that are tied to none."""
    label = fields.get("default_chunk.Qlist", "")
    tied = [node for node in nodes.values() if node.get("queue") == name]
    marked = [
        node for node in nodes.values() if label and label in node.get("resources_available.Qlist", "").split(",")
    ]
    return tied or marked or [node for node in nodes.values() if "queue" not in node and not label]


def _largest(nodes: list[dict[str, str]], resource: str) -> int | None:
    if not nodes:
        return None
    return max(_read_count(node.get(f"resources_available.{resource}")) or 0 for node in nodes)


def _read_count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _read_time(text: str | None) -> int | None:
    try:
        return parse_duration(text) if text else None
    except InvalidJob:
        return None


def _read_memory(text: str) -> int | None:
    try:
        return parse_memory(text)
    except InvalidJob:
        return None
