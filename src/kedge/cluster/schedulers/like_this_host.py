# SPDX-License-Identifier: BSD-3-Clause
"""Nodes whose CPUs and GPUs no scheduler tells: those that have as many processes as this host are like it."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.allocation import AllocatedNode, ThisHost


def make_nodes(
    pairs: Sequence[tuple[str, int]], host: ThisHost, *, slot_cpus: bool = False, cpus: int = 0
) -> tuple[AllocatedNode, ...]:
    """Nodes of names and processes; a process may be a CPU (`slot_cpus`), or `cpus` are those of a node like this."""
    own = dict(pairs).get(find_here(pairs, host))
    found = []
    for name, count in pairs:
        is_alike = count == own
        found.append(
            AllocatedNode(name, count, count if slot_cpus else cpus * is_alike, host.gpus if is_alike else None)
        )
    return tuple(found)


def find_here(pairs: Sequence[tuple[str, int]], host: ThisHost) -> str:
    """Which of the nodes this host is, with or without its domain; empty: none."""
    short = host.name.partition(".")[0]
    names = [name for name, _ in pairs]
    if host.name in names:
        return host.name
    return next((name for name in names if name.partition(".")[0] == short), "")
