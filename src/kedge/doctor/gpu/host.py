# SPDX-License-Identifier: BSD-3-Clause
"""The NVIDIA driver as the checks see it: the same functions look that --nv looks with."""

from __future__ import annotations

import os

from kedge.doctor.surroundings import Surroundings
from kedge.frozen import frozen
from kedge.posix.views import DirectoryView
from kedge.runtime.devices.nvidia.driver import Driver
from kedge.runtime.devices.nvidia.libraries import Libraries, find_libraries
from kedge.runtime.devices.nvidia.missing_parts import Lack, find_missing
from kedge.runtime.facts import HostFacts


@frozen
class GpuHost:
    """The driver of this machine and what of it is missing."""

    host: HostFacts
    driver: Driver
    libraries: Libraries
    lacks: tuple[Lack, ...]

    @property
    def has_gpu(self) -> bool:
        """Whether there is a driver to say anything about; where there is none, one check says so for all."""
        return not any(lack.subject in ("absent", "module") for lack in self.lacks)

    def list_lacks(self, subject: str) -> list[Lack]:
        """What is missing of one kind."""
        return [lack for lack in self.lacks if lack.subject == subject]

    def locate(self, path: str) -> str:
        """Where a file of that machine is on this one."""
        return self.host.view.locate(path) if isinstance(self.host.view, DirectoryView) else path


def look_at_gpus(surroundings: Surroundings) -> GpuHost:
    """The driver, its devices and libraries, below the root of the surroundings."""
    view = DirectoryView(surroundings.root, is_still=True)
    host = HostFacts(view=view, environ=surroundings.environ, machine=os.uname().machine)
    driver = Driver(view)
    libraries = find_libraries(host, driver.version)
    return GpuHost(host, driver, libraries, tuple(find_missing(host, driver, libraries)))


def find_other_driver(gpu_host: GpuHost) -> str:
    """What machine this is where NVIDIA's driver is laid out in another way; empty where it is not."""
    view = gpu_host.host.view
    if view.kind("/dev/dxg") and not view.kind("/dev/nvidiactl"):
        return "Windows' subsystem for Linux: the driver is that of Windows"
    if view.kind("/etc/nv_tegra_release"):
        return "a Jetson board: the driver belongs to its system"
    return ""
