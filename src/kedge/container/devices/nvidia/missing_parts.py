# SPDX-License-Identifier: BSD-3-Clause
"""Says why --nv finds no usable NVIDIA GPU, and what to do. The container starts all the same."""

from __future__ import annotations

from kedge.container.devices.driver_report import DriverReport, Lack
from kedge.container.devices.gpu_advice import advise_request, describe_absence, find_job, name_host
from kedge.container.devices.nvidia.driver import Driver, find_layout
from kedge.container.devices.nvidia.libraries import find_libraries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.nvidia.libraries import Libraries
    from kedge.container.facts import HostFacts
    from kedge.system.views import View

_PCI_VENDOR = b"0x10de"
_PCI_DEVICES = "/sys/bus/pci/devices"
_LAYOUTS = {
    "wsl": "Windows Subsystem for Linux: the driver is that of Windows",
    "jetson": "Jetson board: the driver belongs to its system",
}
_NO_DRIVER = "no driver in the kernel, no /dev/nvidiactl"


def report_driver(host: HostFacts) -> DriverReport:
    """The driver of this host, its nodes and everything that is missing."""
    layout = find_layout(host)
    if layout:
        return DriverReport((), summary=_LAYOUTS[layout])
    driver = Driver(host.view)
    libraries = find_libraries(host, driver.version)
    summary = f"NVIDIA driver {driver.version} is loaded" if driver.version else ""
    if not summary and libraries.version:
        summary = f"NVIDIA driver {libraries.version}, by its libraries (the kernel does not say)"
    return DriverReport(
        find_missing(host, driver, libraries),
        summary=summary,
        usable=[card.node for card in driver.usable],
        refused=[card.node for card in driver.refused],
    )


def find_missing(host: HostFacts, driver: Driver, libraries: Libraries) -> list[Lack]:
    """Every part that is missing; the first is the cause of the others, so it stands alone."""
    view = host.view
    has_module = bool(driver.version or view.kind("/sys/module/nvidia") or view.kind("/proc/driver/nvidia"))
    if not has_module and "nvidiactl" not in driver.nodes:
        return [_explain_no_module(host, libraries)]
    lacks = []
    if not driver.usable:
        lacks.append(_explain_no_nodes(host, driver))
    elif "nvidiactl" not in driver.nodes or "nvidia-uvm" not in driver.nodes:
        node = "nvidiactl" if "nvidiactl" not in driver.nodes else "nvidia-uvm"
        lacks.append(
            Lack(
                "devices",
                f"/dev/{node} is missing, and CUDA does not start without it.",
                f"Root creates it with 'nvidia-modprobe -u -c 0': tell the administrators of {name_host(view)}.",
            )
        )
    problem = _explain_libraries(view, driver, libraries)
    if problem is not None:
        lacks.append(problem)
    return lacks


def _explain_no_module(host: HostFacts, libraries: Libraries) -> Lack:
    if _has_card(host.view):
        return Lack(
            "module",
            f"{name_host(host.view)} has an NVIDIA GPU, but the kernel module 'nvidia' is not loaded "
            "(no /proc/driver/nvidia).",
            "Administrators must install or load the driver: 'modprobe nvidia' as root.",
        )
    reason = f"driver libraries, but {_NO_DRIVER}" if libraries.names else _NO_DRIVER
    return describe_absence(host, "NVIDIA", reason)


def _explain_no_nodes(host: HostFacts, driver: Driver) -> Lack:
    job = find_job(host.environ)
    if driver.refused:
        node = driver.refused[0].node
        if job is not None:
            return Lack(
                "devices",
                f"this node has GPUs, but this {job.title} job was given none (no permission for {node}).",
                f"In the job script, {job.ask_for_gpu}.",
            )
        return Lack(
            "devices",
            f"this node has GPUs, but you may not use them (no permission for {node}).",
            f"Its mode or group excludes you, or only jobs may use it. {advise_request(host, '--nv')}",
        )
    if driver.cards:
        count = len(driver.cards)
        return Lack(
            "devices",
            f"the driver lists {count} GPU{'s' if count > 1 else ''}, but {driver.cards[0].node} is missing.",
            "Root creates the nodes with 'nvidia-modprobe -u -c 0' or by running nvidia-smi; "
            "if this is inside another container, start that one with its GPUs.",
        )
    return Lack("absent", f"driver {driver.version} is loaded, but has no GPU.", advise_request(host, "--nv"))


def _explain_libraries(view: View, driver: Driver, libraries: Libraries) -> Lack | None:
    wanted = driver.version or libraries.version
    node = name_host(view)
    if not libraries.names:
        if libraries.others and driver.version:
            return Lack(
                "libraries",
                f"the kernel runs NVIDIA driver {driver.version}, but the libraries on {node} are of version "
                f"{', '.join(libraries.others)}: the driver was updated and the node must be rebooted (nvidia-smi "
                "then says 'Driver/library version mismatch').",
                "Use another node and tell the administrators.",
            )
        return Lack(
            "libraries",
            f"no libraries of NVIDIA driver {wanted or '(any version)'} in /etc/ld.so.cache or the usual directories.",
            "If they are elsewhere, add their directory to LD_LIBRARY_PATH.",
        )
    if not libraries.has("libcuda"):
        return Lack(
            "libraries",
            f"libcuda.so.{wanted} is not on {node}: the driver was installed without its compute part, and CUDA "
            "programs do not run.",
        )
    if not libraries.has("libnvidia-ml"):
        return Lack(
            "libraries",
            f"libnvidia-ml.so.{wanted} is not on {node}: nvidia-smi and NCCL do not find the GPUs.",
        )
    return None


def _has_card(view: View) -> bool:
    """Whether the PCI bus has a display or compute card of NVIDIA's."""
    for name in view.names(_PCI_DEVICES)[:4096]:
        if (view.read(f"{_PCI_DEVICES}/{name}/vendor", 64) or b"").strip() != _PCI_VENDOR:
            continue
        if (view.read(f"{_PCI_DEVICES}/{name}/class", 64) or b"").strip().startswith(b"0x03"):
            return True
    return False
