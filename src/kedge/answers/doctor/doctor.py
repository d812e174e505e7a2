# SPDX-License-Identifier: BSD-3-Clause
"""`kedge doctor`: gathers the surroundings of this user and runs all checks."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from kedge.answers.doctor.containers.namespaces import NAME as NAMESPACES
from kedge.answers.doctor.diagnosis import Diagnosis
from kedge.answers.doctor.finding import FAIL, WARNING, Finding
from kedge.answers.doctor.run_checks import TOTAL_SECONDS, run_checks
from kedge.answers.doctor.run_checks import list_checks as list_table
from kedge.answers.doctor.surroundings import Check, Surroundings
from kedge.base.frozen import replace
from kedge.cluster.site import Site
from kedge.errors import KedgeError
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
    from kedge.answers.doctor.node_check import make_node_check  # late: it brings the tables of GPUs

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
        importlib.import_module("kedge.answers.doctor.network.credentials")
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
    if finding.check != NAMESPACES or finding.level != FAIL:
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
