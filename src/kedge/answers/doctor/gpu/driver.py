# SPDX-License-Identifier: BSD-3-Clause
"""The GPU drivers of this host, vendor by vendor: loaded, and with device nodes that this user may open."""

from __future__ import annotations

import os
from collections.abc import Callable

from kedge.answers.doctor.finding import FAIL, NOTE, OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.toolkit import judge_toolkit
from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.counting import count_things
from kedge.container.devices import load_vendor
from kedge.container.devices.driver_report import DriverReport, Lack
from kedge.container.facts import HostFacts
from kedge.container.options import VENDORS
from kedge.system.views import DirectoryView

_PAGE = "kedge help doctor"
_FURTHER: dict[str, Callable[[Surroundings], list[Finding]]] = {"NVIDIA": judge_toolkit}


def check_driver(surroundings: Surroundings) -> list[Finding]:
    """The kernel's modules and their versions; a host without any GPU is told so once."""
    reports = _examine_drivers(surroundings)
    present = {name: report for name, report in reports.items() if not report.list_lacks("absent")}
    if not present:
        lack = next(lack for report in reports.values() for lack in report.list_lacks("absent"))
        why = "GPU programs do not run on this host; normal for a login node"
        return [_make_finding("gpu-driver", NOTE, lack, why)]
    findings = []
    for name, report in present.items():
        findings += _judge_driver(name, report)
        if report.has_gpu and name in _FURTHER:
            findings += _FURTHER[name](surroundings)
    return findings


def _judge_driver(vendor: str, report: DriverReport) -> list[Finding]:
    for lack in report.list_lacks("module"):
        return [_make_finding("gpu-driver", FAIL, lack, "no program can use the GPU without it")]
    if report.summary:
        return [Finding("gpu-driver", OK, report.summary)]
    return [
        Finding(
            "gpu-driver",
            WARNING,
            f"{vendor} driver version unknown: neither the kernel nor the driver libraries name it",
            why="'kedge explain' needs the driver version to judge images",
            fix="read the version with 'nvidia-smi' and pass it: 'kedge explain IMAGE --driver VERSION'",
            docs=f"{_PAGE} gpu-driver",
        )
    ]


def check_devices(surroundings: Surroundings) -> list[Finding]:
    """The nodes in /dev: there, and for this user."""
    reports = [report for report in _examine_drivers(surroundings).values() if report.has_gpu]
    level = NOTE if any(report.usable for report in reports) else FAIL
    why = "programs in containers find no GPU: containers get the host's device nodes"
    findings = []
    for report in reports:
        lacks = report.list_lacks("devices")
        findings += [_make_finding("gpu-devices", FAIL if report.usable else level, lack, why) for lack in lacks]
        if report.usable and not lacks:
            findings.append(Finding("gpu-devices", OK, _describe_nodes(report)))
    return findings


def _describe_nodes(report: DriverReport) -> str:
    refused = len(report.refused)
    more = f" ({refused} more {'is' if refused == 1 else 'are'} not allowed for this process)" if refused else ""
    return f"{count_things(len(report.usable), 'GPU')}: {', '.join(report.usable)}{more}"


def _examine_drivers(surroundings: Surroundings) -> dict[str, DriverReport]:
    """The report on each vendor's driver, below the root of the surroundings."""
    view = DirectoryView(surroundings.root, is_still=True)
    host = HostFacts(view=view, environ=surroundings.environ, machine=os.uname().machine)
    return {vendor.name: load_vendor(vendor).examine_driver(host) for vendor in VENDORS}


def _make_finding(name: str, level: str, lack: Lack, why: str) -> Finding:
    return Finding(name, level, lack.what.rstrip("."), why=why, fix=lack.fix, docs=f"{_PAGE} {name}")
