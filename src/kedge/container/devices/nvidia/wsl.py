# SPDX-License-Identifier: BSD-3-Clause
"""--nv on Windows' subsystem for Linux: the driver is Windows', reached through /dev/dxg and /usr/lib/wsl."""

from __future__ import annotations

from kedge.container.devices.nvidia.libraries import follow_links
from kedge.container.facts import Additions, Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts

_LIBRARIES, _DRIVERS = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"


def plan_wsl(host: HostFacts) -> Additions:
    """The libraries that Windows lends, and the directory they load the driver's parts from."""
    additions = Additions()
    view = host.view
    additions.devices = ["/dev/dxg"]
    for name in view.names(_LIBRARIES):
        if ".so" in name:
            additions.libraries.append((follow_links(view, f"{_LIBRARIES}/{name}"), name))
    if view.kind(_DRIVERS) == "d":
        additions.binds.append(Bind(_DRIVERS, _DRIVERS, readonly=True, is_optional=True, origin="--nv"))
    if view.is_executable(f"{_LIBRARIES}/nvidia-smi"):
        source = f"{_LIBRARIES}/nvidia-smi"
        additions.binds.append(Bind(source, "/usr/bin/nvidia-smi", readonly=True, is_optional=True, origin="--nv"))
    if "CUDA_VISIBLE_DEVICES" in host.environ:
        additions.variables["CUDA_VISIBLE_DEVICES"] = host.environ["CUDA_VISIBLE_DEVICES"]
    additions.notes.append(f"NVIDIA driver of Windows: {len(additions.libraries)} libraries from {_LIBRARIES}")
    if not any(name.startswith("libcuda.so") for _, name in additions.libraries):
        additions.warnings.append(f"--nv: {_LIBRARIES} has no libcuda: install NVIDIA's driver in Windows.")
    return additions
