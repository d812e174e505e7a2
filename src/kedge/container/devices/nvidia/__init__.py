# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA GPUs (--nv): what the table of vendors asks of this package. Its modules are loaded when they are needed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.driver_report import DriverReport
    from kedge.container.facts import Additions, HostFacts, ImageFacts
    from kedge.container.options import RunOptions


def plan_gpus(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """Everything that --nv adds; where a part is missing it says which, and adds the others."""
    from kedge.container.devices.nvidia.plan import plan_nvidia

    return plan_nvidia(options, host, image)


def examine_driver(host: HostFacts) -> DriverReport:
    """The driver, its device nodes and libraries."""
    from kedge.container.devices.nvidia.missing_parts import report_driver

    return report_driver(host)
