# SPDX-License-Identifier: BSD-3-Clause
"""Devices of the host in a container: GPUs by vendor (`gpu_vendors`), CDI devices, and the fabrics of clusters."""

from __future__ import annotations

from kedge.container.facts import Additions
from kedge.container.options import VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from kedge.container.devices.driver_report import DriverReport
    from kedge.container.facts import HostFacts, ImageFacts
    from kedge.container.options import RunOptions, Vendor

    class VendorModule(Protocol):
        """What the module of a GPU vendor offers."""

        def plan_gpus(self, options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
            """Everything that the flag adds to a container, with a warning for each part that the host lacks."""
            ...

        def examine_driver(self, host: HostFacts) -> DriverReport:
            """The state of the driver on this host, for doctor."""
            ...


def load_vendor(vendor: Vendor) -> VendorModule:
    """The module of a vendor: imported when its GPUs are asked for, and without importlib, which costs a start more."""
    module: VendorModule = __import__(f"{__name__}.{vendor.module}", fromlist=("plan_gpus",))
    return module


def plan_devices(options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
    """Everything that the requested devices add to a container. A function of its arguments alone."""
    additions = Additions()
    # late imports: a start pays only for what it asked for
    for vendor in VENDORS:
        if vendor.is_asked(options):
            additions.add(load_vendor(vendor).plan_gpus(options, host, image))
        elif vendor.grant in host.environ and not vendor.is_off(options) and host.view.kind(vendor.node):
            from kedge.container.devices.forgotten_flag import warn_of_forgotten_flag

            additions.warnings += warn_of_forgotten_flag(vendor, options, host, image)
    if options.device:
        from kedge.container.devices.cdi import plan_cdi

        additions.add(plan_cdi(options, host, image))
    if options.contain and options.step is None:
        from kedge.container.devices.fabric import list_fabric

        additions.devices += list_fabric(host.view)
    additions.devices = list(dict.fromkeys(additions.devices))
    additions.libraries = list(dict.fromkeys(additions.libraries))
    return additions
