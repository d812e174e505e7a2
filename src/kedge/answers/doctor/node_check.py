# SPDX-License-Identifier: BSD-3-Clause
"""The check of compute nodes: inside a job it saves the node's facts, on a login node it shows them."""

from __future__ import annotations

import time

from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Check, Surroundings
from kedge.answers.host_target import describe_host
from kedge.cluster.site import Site
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.container.facts import gather_host
from kedge.jobs.seen_nodes import NodeFacts, Remembered, find_job_place, recall_nodes, remember_node

NAME = "compute-nodes"
_DOCS = "kedge help doctor compute-nodes"
_MOST_SHOWN = 6


def make_node_check() -> Check:
    """Return the check of compute nodes, which needs what is above the other checks, and is not in their table."""
    return Check(NAME, "compute nodes", "Cluster", check_nodes)


def check_nodes(surroundings: Surroundings) -> list[Finding]:
    """In a job save the facts of this node; else show what jobs saw of the site's nodes."""
    environ, settings, site = surroundings.environ, surroundings.settings, surroundings.site
    place = find_job_place(environ, settings)
    if place is not None:
        facts = make_facts(describe_host(gather_host(environ), load_tables()))
        if remember_node(environ, settings, facts) is None:
            return [_explain_unwritten()]
        what = f"saved for the login node: {_describe(facts)}, in the queue {place.queue} of {place.site.name}"
        return [Finding(NAME, OK, what)]
    if site is None or site.scheduler == "local":
        return []
    seen = recall_nodes(site.name, "", environ, settings)
    if not seen:
        return _explain_unseen(site)
    stale = [node for node in seen if node.is_stale]
    findings = [Finding(NAME, OK, _tell(node)) for node in seen[:_MOST_SHOWN] if not node.is_stale]
    return findings + [_explain_stale(node) for node in stale[:_MOST_SHOWN]]


def make_facts(target: Target) -> NodeFacts:
    """The facts of this host, as they are saved."""
    return NodeFacts(
        driver=target.driver,
        gpus=tuple(sorted({gpu.name for gpu in target.gpus})),
        gpu_count=sum(gpu.count for gpu in target.gpus),
        architecture=target.architecture,
        cpu=target.cpu,
        cpu_features=tuple(sorted(target.cpu_features or ())),
        glibc=target.glibc,
    )


def _describe(facts: NodeFacts) -> str:
    gpus = f"{facts.gpu_count} × {' and '.join(facts.gpus)}" if facts.gpus else "no GPU"
    driver = f", driver {facts.driver}" if facts.driver else ""
    return f"{gpus}{driver}, {facts.architecture or 'architecture unknown'}"


def _tell(seen: Remembered) -> str:
    return f"{seen.queue}: {_describe(seen.facts)} ({seen.source})"


def _explain_unwritten() -> Finding:
    what = "kedge could not save the facts of this node for the login node"
    why = "'kedge explain' on the login node does not know the driver of these nodes"
    return Finding(NAME, NOTE, what, why=why, fix="see the check 'job-records', whose directory is used", docs=_DOCS)


def _explain_unseen(site: Site) -> list[Finding]:
    queues = [queue for queue in site.queues if queue.gpus_per_node or queue.gpu]
    if not queues or all(queue.driver for queue in queues):
        return []
    what = f"unknown: the driver of the GPU nodes of {site.name}"
    why = "kedge cannot say whether an image runs on them before a job has checked"
    return [
        Finding(
            NAME, NOTE, what, why=why, fix=f"run 'kedge doctor' once in a job of the queue {queues[0].name}", docs=_DOCS
        )
    ]


def _explain_stale(seen: Remembered) -> Finding:
    days = int((time.time() - seen.when) // 86400)
    why = f"seen {days} days ago; clusters update drivers a few times a year"
    return Finding(
        NAME, NOTE, _tell(seen), why=why, fix=f"run 'kedge doctor' in a job of the queue {seen.queue}", docs=_DOCS
    )
