# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor`: gathers the surroundings of this user and runs all checks."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from kedge.answers.doctor.containers import USER_NAMESPACES
from kedge.answers.doctor.diagnosis import Diagnosis
from kedge.answers.doctor.run_checks import TOTAL_SECONDS, run_checks
from kedge.answers.doctor.run_checks import list_checks as list_table
from kedge.answers.doctor.surroundings import FAIL, NOTE, OK, WARNING, Check, Finding, Surroundings
from kedge.answers.host_target import describe_host
from kedge.base.frozen import replace
from kedge.cluster.site import Site
from kedge.compat.tables.load import load_tables
from kedge.compat.target import Target
from kedge.container.facts import gather_host
from kedge.errors import KedgeError
from kedge.jobs.seen_nodes import NodeFacts, Remembered, find_job_place, recall_nodes, remember_node
from kedge.system.files import atomic_output
from kedge.system.settings import Settings

_NETWORK = frozenset({"proxies", "registries", "credentials", "logins"})  # checks that need HTTP
_USUAL = 0.5  # seconds for the imports: five times what they take on a common login node
_SLOWEST = 20.0  # a user waits a minute at most
_OWNERS_ONLY = 0o600  # a report says much about a user, and where

__all__ = ["Check", "describe_surroundings", "diagnose", "list_checks", "write_private"]


def describe_surroundings(
    settings: Settings, environ: Mapping[str, str], *, is_offline: bool = False, patience: float = 1.0
) -> Surroundings:
    """Describe this host and its site; raises if the user named a site that is unknown."""
    site = _find_site(settings, environ)
    return Surroundings(environ, settings, site=site, is_offline=is_offline, patience=patience)


def _find_site(settings: Settings, environ: Mapping[str, str]) -> Site | None:
    from kedge.cluster.sites.find_site import choose_site  # late: profiles are read only here

    try:
        return choose_site(settings, environ)
    except KedgeError:
        if settings.site:
            raise
        return None


def list_checks(image: str | None = None) -> tuple[Check, ...]:
    """List all checks: those of the table, that of compute nodes, and that of an image if one is named."""

    checks = (*list_table(), make_node_check())
    if not image:
        return checks
    from kedge.answers.doctor.image_check import make_image_check  # late: most ask about the machine alone

    return (make_image_check(image), *checks)


def diagnose(
    surroundings: Surroundings, names: Collection[str] | None = None, *, image: str | None = None
) -> Diagnosis:
    """Run the checks called `names`, or all; with an image its own, too."""
    began = time.monotonic()
    checks = list_checks(image)
    wanted = [*names, checks[0].name] if names and image else names
    if not wanted or _NETWORK.intersection(wanted):
        # once, before there are children: each of them would import all of it, out of the time it has for answers
        importlib.import_module("kedge.answers.doctor.network")
    spent = time.monotonic() - began
    slowness = _measure_slowness(spent)
    surroundings = replace(surroundings, patience=surroundings.patience * slowness)
    diagnosis = run_checks(surroundings, wanted, checks=checks, seconds=TOTAL_SECONDS - min(spent, _USUAL))
    findings = tuple(_soften_namespaces(finding, surroundings.environ) for finding in diagnosis.findings)
    return replace(diagnosis, findings=findings, slowness=slowness)


def _measure_slowness(spent: float) -> float:
    """How many times longer than usual checks may take: where imports crawl, in a VM or from a network, so do checks.

    Without this their time would be over before the first one begins.
    """
    return min(max(1.0, spent / _USUAL), _SLOWEST)


def _soften_namespaces(finding: Finding, environ: Mapping[str, str]) -> Finding:
    """Soften a finding: without namespaces kedge uses a setuid Apptainer, if there is one."""
    if finding.check != USER_NAMESPACES or finding.level != FAIL:
        return finding
    from kedge.container.others.other_runtimes import find_setuid_apptainer  # late: only where this machine refuses

    program = find_setuid_apptainer(environ)
    if not program:
        return finding
    why = f"kedge cannot start containers itself; it uses {program}, which is setuid root, instead"
    return replace(finding, level=WARNING, why=why)


def write_private(path: Path, text: str, *, force: bool) -> None:
    """Write a file that only its owner can read, in one step."""
    with atomic_output(path, mode=_OWNERS_ONLY, force=force) as file:
        file.write(text.encode(errors="replace"))


# The check of compute nodes: inside a job it saves the node's facts, on a login node it shows them.

_COMPUTE_NODES = "compute-nodes"
_DOCS = "kedge help doctor compute-nodes"
_MOST_SHOWN = 6


def make_node_check() -> Check:
    """Return the check of compute nodes, which needs what is above the other checks, and is not in their table."""
    return Check(_COMPUTE_NODES, "compute nodes", "Cluster", check_nodes)


def check_nodes(surroundings: Surroundings) -> list[Finding]:
    """In a job save the facts of this node; else show what jobs saw of the site's nodes."""
    environ, settings, site = surroundings.environ, surroundings.settings, surroundings.site
    place = find_job_place(environ, settings)
    if place is not None:
        facts = make_facts(describe_host(gather_host(environ), load_tables()))
        if remember_node(environ, settings, facts) is None:
            return [_explain_unwritten()]
        what = f"saved for the login node: {_describe(facts)}, in the queue {place.queue} of {place.site.name}"
        return [Finding(_COMPUTE_NODES, OK, what)]
    if site is None or site.scheduler == "local":
        return []
    seen = recall_nodes(site.name, "", environ, settings)
    if not seen:
        return _explain_unseen(site)
    stale = [node for node in seen if node.is_stale]
    findings = [Finding(_COMPUTE_NODES, OK, _tell(node)) for node in seen[:_MOST_SHOWN] if not node.is_stale]
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
    return Finding(
        _COMPUTE_NODES, NOTE, what, why=why, fix="see the check 'job-records', whose directory is used", docs=_DOCS
    )


def _explain_unseen(site: Site) -> list[Finding]:
    queues = [queue for queue in site.queues if queue.gpus_per_node or queue.gpu]
    if not queues or all(queue.driver for queue in queues):
        return []
    what = f"unknown: the driver of the GPU nodes of {site.name}"
    why = "kedge cannot say whether an image runs on them before a job has checked"
    return [
        Finding(
            _COMPUTE_NODES,
            NOTE,
            what,
            why=why,
            fix=f"run 'kedge doctor' once in a job of the queue {queues[0].name}",
            docs=_DOCS,
        )
    ]


def _explain_stale(seen: Remembered) -> Finding:
    days = int((time.time() - seen.when) // 86400)
    why = f"seen {days} days ago; clusters update drivers a few times a year"
    return Finding(
        _COMPUTE_NODES,
        NOTE,
        _tell(seen),
        why=why,
        fix=f"run 'kedge doctor' in a job of the queue {seen.queue}",
        docs=_DOCS,
    )
