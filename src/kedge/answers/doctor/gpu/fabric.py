# SPDX-License-Identifier: BSD-3-Clause
"""Fast networks between GPUs and between nodes: NVSwitch and its manager, InfiniBand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.answers.doctor.finding import NOTE, OK, WARNING, Finding
from kedge.answers.doctor.gpu.nvidia.host import GpuHost, look_at_gpus
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.devices.fabric import list_fabric

if TYPE_CHECKING:
    from kedge.system.views import View

NAME = "fabric"
_DOCS = f"kedge help doctor {NAME}"
_ADAPTERS = "/sys/class/infiniband"
_NODES = "/dev/infiniband"
_MANAGER = "nv-fabricmanage"  # as the kernel cuts the name of nv-fabricmanager
_MANAGER_SOCKET = "/var/run/nvidia-fabricmanager/socket"
_MOST_PROCESSES = 20000


def check_fabric(surroundings: Surroundings) -> list[Finding]:
    """Examine the host's fabrics, and what keeps MPI and NCCL from using them."""
    gpus = look_at_gpus(surroundings)
    view = gpus.host.view
    findings = _judge_switches(gpus)
    adapters = view.names(_ADAPTERS)
    if adapters:
        findings += _judge_adapters(view, adapters)
        if gpus.has_gpu and gpus.driver.usable and not view.kind("/dev/gdrdrv"):
            why = "small messages between GPUs of different nodes are copied through host memory, a little slower"
            fix = "administrators can load the module 'gdrdrv' (GDRCopy)"
            findings.append(Finding(NAME, NOTE, "/dev/gdrdrv does not exist", why=why, fix=fix, docs=_DOCS))
    others = [node for node in list_fabric(view) if node != _NODES]
    if others:
        findings.append(Finding(NAME, OK, f"also found: {', '.join(others)}"))
    return findings


def _judge_switches(gpus: GpuHost) -> list[Finding]:
    """Machines with NVSwitch need a service that joins the GPUs; before that CUDA does not start."""
    switches = [name for name in gpus.driver.nodes if name.startswith("nvidia-nvswitch")]
    if not switches:
        return []
    if gpus.host.view.kind(_MANAGER_SOCKET) or _is_running(gpus.host.view, _MANAGER):
        return [Finding(NAME, OK, "NVSwitch with a running fabric manager")]
    return [
        Finding(
            NAME,
            WARNING,
            "this node has NVSwitch, but kedge sees no running fabric manager",
            why="CUDA does not start without it (error 802, system not yet initialized)",
            fix="check 'systemctl status nvidia-fabricmanager'. If it is down, use another node and tell the "
            "administrators. Inside a container kedge cannot see the service, although it may run",
            docs=_DOCS,
        )
    ]


def _is_running(view: View, name: str) -> bool:
    numbers = [number for number in view.names("/proc") if number.isdigit()][:_MOST_PROCESSES]
    return any((view.read(f"/proc/{number}/comm", 64) or b"").strip() == name.encode() for number in numbers)


def _judge_adapters(view: View, adapters: list[str]) -> list[Finding]:
    nodes = [f"{_NODES}/{name}" for name in view.names(_NODES) if name.startswith("uverbs")]
    if not nodes:
        what = f"this node has adapters ({', '.join(adapters)}), but no {_NODES}/uverbs*"
        why = "MPI and NCCL silently fall back to TCP, which is many times slower"
        fix = "administrators must load the module 'ib_uverbs'; a container must be started with these devices"
        return [Finding(NAME, WARNING, what, why=why, fix=fix, docs=_DOCS)]
    refused = [node for node in nodes if not view.can_use(node)]
    if len(refused) == len(nodes):
        what, why = f"you may not open {refused[0]}", "MPI and NCCL fall back to TCP, which is much slower"
        return [
            Finding(
                NAME,
                WARNING,
                what,
                why=why,
                fix="try it in a job; if that fails too, tell the administrators",
                docs=_DOCS,
            )
        ]
    shown = [f"{adapter} {_read_port(view, adapter)}".rstrip() for adapter in adapters]
    if not any("ACTIVE" in port for port in shown):
        what = f"no port is up: {', '.join(shown)}"
        why = "MPI and NCCL cannot use these adapters"
        return [Finding(NAME, WARNING, what, why=why, fix="use another node and tell the administrators", docs=_DOCS)]
    return [Finding(NAME, OK, ", ".join(shown))]


def _read_port(view: View, adapter: str) -> str:
    """`ACTIVE, 200 Gb/sec (4X HDR)` of an adapter's first port."""
    folder = f"{_ADAPTERS}/{adapter}/ports/1"
    state = (view.read(f"{folder}/state", 64) or b"").decode(errors="replace").rpartition(":")[2].strip()
    rate = (view.read(f"{folder}/rate", 64) or b"").decode(errors="replace").strip()
    return ", ".join(part for part in (state, rate if state == "ACTIVE" else "") if part)
