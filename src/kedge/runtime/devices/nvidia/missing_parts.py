# SPDX-License-Identifier: BSD-3-Clause
"""Says why there is no NVIDIA GPU where one was asked for, and what to do. The container starts all the same."""

from __future__ import annotations

from kedge.schedulers.choose import list_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.posix.views import View
    from kedge.runtime.devices.nvidia.driver import Driver
    from kedge.runtime.devices.nvidia.libraries import Libraries
    from kedge.runtime.facts import HostFacts
    from kedge.schedulers.facts import SchedulerFacts

_NVIDIA = b"0x10de"
_PCI = "/sys/bus/pci/devices"
_GRANTS = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")  # and those of each scheduler


class Lack:
    """One thing that is missing, and what to do; `subject` is absent, module, devices or libraries."""

    __slots__ = ("fix", "subject", "what")

    def __init__(self, subject: str, what: str, fix: str = "") -> None:
        self.subject = subject  # absent: there is no GPU here, which may be as it should
        self.what = what
        self.fix = fix


def explain_missing(host: HostFacts, driver: Driver, libraries: Libraries) -> list[str]:
    """What --nv says: one sentence or two for each thing that is missing."""
    return [f"--nv: {lack.what} {lack.fix}".rstrip() for lack in find_missing(host, driver, libraries)]


def find_missing(host: HostFacts, driver: Driver, libraries: Libraries) -> list[Lack]:
    """Each thing that is missing; the first is the cause of the others, so it stands alone."""
    view = host.view
    has_module = bool(driver.version or view.kind("/sys/module/nvidia") or view.kind("/proc/driver/nvidia"))
    if not has_module and "nvidiactl" not in driver.nodes:
        return [_explain_no_module(host, libraries)]
    said = []
    if not driver.usable:
        said.append(_explain_no_nodes(host, driver))
    elif "nvidiactl" not in driver.nodes or "nvidia-uvm" not in driver.nodes:
        node = "nvidiactl" if "nvidiactl" not in driver.nodes else "nvidia-uvm"
        said.append(
            Lack(
                "devices",
                f"/dev/{node} is not there, and CUDA does not start without it.",
                f"Root makes it with 'nvidia-modprobe -u -c 0': tell the administrators of {_name_host(view)}.",
            )
        )
    problem = _explain_libraries(view, driver, libraries)
    if problem is not None:
        said.append(problem)
    return said


def _explain_no_module(host: HostFacts, libraries: Libraries) -> Lack:
    view = host.view
    node = _name_host(view)
    if _has_card(view):
        return Lack(
            "module",
            f"{node} has an NVIDIA GPU, but the kernel module 'nvidia' is not loaded (/proc/driver/nvidia is not "
            "there).",
            "The driver must be installed or loaded by the administrators: 'modprobe nvidia' as root.",
        )
    if view.kind("/dev/kfd"):
        found = f"{node} has AMD GPUs (/dev/kfd) and no NVIDIA GPU: images for CUDA do not run on them."
        return Lack("absent", found, "Take an image for ROCm, and start it with --rocm.")
    found = f"{node} has no NVIDIA GPU (no driver in the kernel, no /dev/nvidiactl)."
    if libraries.names:
        found = f"{node} has driver libraries, but no NVIDIA GPU (no driver in the kernel, no /dev/nvidiactl)."
    return Lack("absent", found, _advise_request(host))


def _explain_no_nodes(host: HostFacts, driver: Driver) -> Lack:
    job = find_job(host.environ)
    if driver.refused:
        node = driver.refused[0].node
        if job is not None:
            return Lack(
                "devices",
                f"there are GPUs, but this {job.title} job may not use them (no permission for {node}): "
                "it was given none.",
                f"In the job script, {job.ask_for_gpu}.",
            )
        return Lack(
            "devices",
            f"there are GPUs, but you may not use them (no permission for {node}).",
            f"Its mode or group is not for you, or they are given to jobs only. {_advise_request(host)}",
        )
    if driver.cards:
        count = len(driver.cards)
        return Lack(
            "devices",
            f"the driver knows {count} GPU{'s' if count > 1 else ''}, but {driver.cards[0].node} is not there.",
            "Root makes the nodes with 'nvidia-modprobe -u -c 0' or by running nvidia-smi; "
            "inside another container, it must be started with its GPUs.",
        )
    return Lack("absent", f"the driver {driver.version} is loaded, but knows no GPU.", _advise_request(host))


def _explain_libraries(view: View, driver: Driver, libraries: Libraries) -> Lack | None:
    wanted = driver.version or libraries.version
    node = _name_host(view)
    if not libraries.names:
        if libraries.others and driver.version:
            there = ", ".join(libraries.others)
            return Lack(
                "libraries",
                f"the kernel runs NVIDIA driver {driver.version}, but the libraries on {node} are of "
                f"{there}: the driver was updated and the node must be rebooted (nvidia-smi then says "
                "'Driver/library version mismatch').",
                "Use another node and tell the administrators.",
            )
        return Lack(
            "libraries",
            f"no libraries of NVIDIA driver {wanted or 'of any version'} were found, neither by /etc/ld.so.cache "
            "nor in the usual directories.",
            "If they are elsewhere, name the directory in LD_LIBRARY_PATH before the call.",
        )
    if not libraries.has("libcuda"):
        return Lack(
            "libraries",
            f"libcuda.so.{wanted} is not on {node}: the driver was installed without its compute "
            "part, and CUDA programs will not run.",
        )
    if not libraries.has("libnvidia-ml"):
        return Lack(
            "libraries",
            f"libnvidia-ml.so.{wanted} is not on {node}: nvidia-smi and NCCL will not find the GPUs.",
        )
    return None


def _advise_request(host: HostFacts) -> str:
    job = find_job(host.environ)
    if job is not None:
        if has_grant(host.environ):
            return f"The {job.title} job did ask for GPUs: this node seems broken, tell the administrators."
        return f"If this {job.title} job is to have one, {job.ask_for_gpu}."
    for facts in list_facts():
        if facts.submit_path and host.view.is_executable(facts.submit_path):
            return f"It looks like a login node: start this in a {facts.title} job ({facts.ask_for_gpu})."
    return "Run it on a machine with one, or without --nv."


def has_grant(environ: Mapping[str, str]) -> bool:
    """Whether the scheduler says that it gave this job GPUs."""
    names = (*_GRANTS, *(name for facts in list_facts() for name in (*facts.gpu_lists, *facts.gpu_counts)))
    return any(environ.get(name, "").lower() not in ("", "nodevfiles", "-1") for name in names)


def find_job(environ: Mapping[str, str]) -> SchedulerFacts | None:
    """The scheduler whose job this is; None outside a job."""
    return next((facts for facts in list_facts(also_recognised=True) if facts.has_job(environ)), None)


def _has_card(view: View) -> bool:
    """Whether the PCI bus has a display or compute card of NVIDIA's."""
    for name in view.names(_PCI)[:4096]:
        if (view.read(f"{_PCI}/{name}/vendor", 64) or b"").strip() != _NVIDIA:
            continue
        if (view.read(f"{_PCI}/{name}/class", 64) or b"").strip().startswith(b"0x03"):
            return True
    return False


def _name_host(view: View) -> str:
    name = (view.read("/proc/sys/kernel/hostname", 256) or b"").decode(errors="replace").strip()
    return name or "this machine"
