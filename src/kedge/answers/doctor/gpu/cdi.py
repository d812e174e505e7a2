# SPDX-License-Identifier: BSD-3-Clause
"""Specifications of the Container Device Interface, which --device reads: usable, and not older than the driver."""

from __future__ import annotations

import re

from kedge.answers.doctor.finding import OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.host import GpuHost, look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.devices.cdi import FOLDERS, Specification, read_specifications
from kedge.container.devices.cdi_hooks import as_mappings

NAME = "cdi"
_DOCS = f"kedge help doctor {NAME}"
_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_MAKE = "administrators renew it with 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml'; --nv does not need it"


def check_cdi(surroundings: Surroundings) -> list[Finding]:
    """Every specification in the two usual directories."""
    gpus = look_at_gpus(surroundings)
    view = gpus.host.view
    specifications, problems = read_specifications(view, list(FOLDERS))
    findings = [
        Finding(NAME, WARNING, problem, why="--device cannot use its devices", fix=_MAKE, docs=_DOCS)
        for problem in problems
    ]
    findings += [_judge(specification, gpus) for specification in specifications]
    if not findings and gpus.has_gpu:
        return [Finding(NAME, OK, "no CDI files: --device finds no GPU; --nv does not need them")]
    return findings


def _judge(specification: Specification, gpus: GpuHost) -> Finding:
    paths = _list_paths(specification)
    missing = [path for path in paths if not gpus.host.view.kind(path)]
    versions = {match[1] for path in paths if (match := _VERSION.search(path))}
    running = gpus.driver.version
    if missing or (running and versions and running not in versions and specification.kind.startswith("nvidia.com/")):
        said = f"it is for driver {', '.join(sorted(versions))}, but the kernel runs {running or 'another one'}"
        reason = said if versions and running and running not in versions else f"{missing[0]} does not exist"
        return Finding(
            NAME,
            WARNING,
            f"{specification.path} is older than the driver: {reason}",
            why="containers with --device miss files or get the wrong version",
            fix=_MAKE,
            docs=_DOCS,
        )
    names = ", ".join(list(specification.devices)[:8]) or "none"
    return Finding(NAME, OK, f"{specification.path}: {specification.kind} has the devices {names}")


def _list_paths(specification: Specification) -> list[str]:
    """The files and nodes of the host that it names."""
    paths = []
    for edits in (specification.edits, *specification.devices.values()):
        paths += [str(mount.get("hostPath") or "") for mount in as_mappings(edits.get("mounts"))]
        paths += [str(node.get("hostPath") or node.get("path") or "") for node in as_mappings(edits.get("deviceNodes"))]
    return [path for path in paths if path.startswith("/")]
