# SPDX-License-Identifier: BSD-3-Clause
"""How to get a GPU where there is none: in a job, by the job's request, on another node, or with another image."""

from __future__ import annotations

from kedge.cluster.schedulers.choose import list_facts
from kedge.container.devices.driver_report import Lack
from kedge.container.options import find_other_vendor, find_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.cluster.schedulers.facts import SchedulerFacts
    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_GRANTS = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")  # and those of each scheduler


def describe_absence(host: HostFacts, name: str, reason: str) -> Lack:
    """Say that the host has no GPU of a vendor: which it has instead, or how a job asks for one."""
    node, vendor = name_host(host.view), find_vendor(name)
    other = find_other_vendor(host.view, name)
    if other is None:
        return Lack("absent", f"{node} has no {name} GPU ({reason}).", advise_request(host, vendor.flag))
    return Lack(
        "absent",
        f"{node} has {other.name} GPUs ({other.node}) and no {name} GPU: images for {vendor.platform} do not run on "
        "them.",
        f"Use an image for {other.platform}, and start it with {other.flag}.",
    )


def advise_request(host: HostFacts, flag: str) -> str:
    """How to get a GPU: by the job's request, in a job, or on another node."""
    job = find_job(host.environ)
    if job is not None:
        if has_grant(host.environ):
            return f"The {job.title} job did request GPUs: this node may be broken, tell the administrators."
        return f"If this {job.title} job is to have one, {job.ask_for_gpu}."
    for facts in list_facts():
        if facts.submit_path and host.view.is_executable(facts.submit_path):
            return f"This looks like a login node: start it in a {facts.title} job ({facts.ask_for_gpu})."
    return f"Run it on a node with a GPU, or without {flag}."


def has_grant(environ: Mapping[str, str]) -> bool:
    """Whether the scheduler says that it gave this job GPUs."""
    names = (*_GRANTS, *(name for facts in list_facts() for name in (*facts.gpu_lists, *facts.gpu_counts)))
    return any(environ.get(name, "").lower() not in ("", "nodevfiles", "-1") for name in names)


def find_job(environ: Mapping[str, str]) -> SchedulerFacts | None:
    """The scheduler whose job this is; None outside a job."""
    return next((facts for facts in list_facts(also_recognised=True) if facts.has_job(environ)), None)


def name_host(view: View) -> str:
    """The host's name, as its kernel has it."""
    name = (view.read("/proc/sys/kernel/hostname", 256) or b"").decode(errors="replace").strip()
    return name or "this host"
