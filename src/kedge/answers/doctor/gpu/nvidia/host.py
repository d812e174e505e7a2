# SPDX-License-Identifier: BSD-3-Clause
"""The NVIDIA driver as the checks see it, by the functions that --nv uses."""

from __future__ import annotations

import os

from kedge.answers.doctor.surroundings import Surroundings
from kedge.base.frozen import frozen
from kedge.container.devices.driver_report import DriverReport
from kedge.container.devices.nvidia.driver import Driver, find_layout
from kedge.container.devices.nvidia.libraries import Libraries, find_libraries
from kedge.container.devices.nvidia.missing_parts import find_missing
from kedge.container.facts import HostFacts
from kedge.system.views import DirectoryView


@frozen
class GpuHost:
    """The NVIDIA driver of this host and what of it is missing."""

    host: HostFacts
    driver: Driver
    libraries: Libraries
    report: DriverReport

    @property
    def has_gpu(self) -> bool:
        """Whether there is a driver to examine; where there is none, one check says so for all."""
        return self.report.has_gpu

    @property
    def can_be_examined(self) -> bool:
        """Whether the driver lies where Linux servers have it; on WSL and Jetson boards it does not."""
        return self.has_gpu and not find_layout(self.host)

    def locate(self, path: str) -> str:
        """Where a file of that host is on this one."""
        return self.host.view.locate(path) if isinstance(self.host.view, DirectoryView) else path


def look_at_gpus(surroundings: Surroundings) -> GpuHost:
    """The driver, its devices and libraries, below the root of the surroundings."""
    view = DirectoryView(surroundings.root, is_still=True)
    host = HostFacts(view=view, environ=surroundings.environ, machine=os.uname().machine)
    driver = Driver(view)
    libraries = find_libraries(host, driver.version)
    return GpuHost(host, driver, libraries, DriverReport(find_missing(host, driver, libraries)))
