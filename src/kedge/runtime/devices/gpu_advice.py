# SPDX-License-Identifier: BSD-3-Clause
"""How to get a GPU where there is none: in a job, by the job's request, on another node, or with another image."""

from __future__ import annotations

from kedge.runtime.devices.driver_report import Lack
from kedge.runtime.gpu_vendors import find_other_vendor, find_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.posix.views import View
    from kedge.runtime.facts import HostFacts

_JOBS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS", "LSB_JOBID": "LSF"}
REQUESTS = {
    "Slurm": "add '--gres=gpu:1' (or '--gpus=1') to sbatch, srun or salloc",
    "PBS": "add '-l select=1:ngpus=1' to qsub",
    "Grid Engine": "add the site's GPU request (often '-l gpu=1') to qsub",
    "LSF": "add '-gpu num=1' to bsub",
}
_SUBMITTERS = {"Slurm": "/usr/bin/sbatch", "PBS": "/opt/pbs/bin/qsub", "Grid Engine": "/usr/bin/qsub"}
_GRANTS = (
    *("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "SGE_HGR_gpu"),
    *("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"),
)


def describe_absence(host: HostFacts, name: str, reason: str) -> Lack:
    """That the host has no GPU of a vendor: which it has instead, or how a job asks for one."""
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
    if job:
        if has_grant(host.environ):
            return f"The {job} job did request GPUs: this node may be broken, tell the administrators."
        return f"If this {job} job is to have one, {REQUESTS[job]}."
    for name, program in _SUBMITTERS.items():
        if host.view.is_executable(program):
            return f"This looks like a login node: start it in a {name} job ({REQUESTS[name]})."
    return f"Run it on a node with a GPU, or without {flag}."


def has_grant(environ: Mapping[str, str]) -> bool:
    """Whether the scheduler says that it gave this job GPUs."""
    return any(environ.get(name, "").lower() not in ("", "nodevfiles", "-1") for name in _GRANTS)


def find_job(environ: Mapping[str, str]) -> str:
    """The scheduler whose job this is; empty outside a job."""
    if environ.get("SGE_ROOT") and environ.get("JOB_ID"):
        return "Grid Engine"
    return next((name for variable, name in _JOBS.items() if environ.get(variable)), "")


def name_host(view: View) -> str:
    """The host's name, as its kernel has it."""
    name = (view.read("/proc/sys/kernel/hostname", 256) or b"").decode(errors="replace").strip()
    return name or "this host"
