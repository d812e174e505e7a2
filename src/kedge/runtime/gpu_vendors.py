# SPDX-License-Identifier: BSD-3-Clause
"""The vendors of GPUs: one row each. Flags, variables, the plan, other runtimes and doctor loop over this table.

A row holds what is needed before the vendor's own module is loaded; that module knows its driver, and is loaded only
when its GPUs are asked for. A new vendor is a module with the two functions of `VendorModule`, and a row.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from kedge.posix.views import View
    from kedge.runtime.devices.driver_report import DriverReport
    from kedge.runtime.facts import Additions, HostFacts, ImageFacts
    from kedge.runtime.options import RunOptions

    class VendorModule(Protocol):
        """What the module of a vendor offers."""

        def plan_gpus(self, options: RunOptions, host: HostFacts, image: ImageFacts) -> Additions:
            """What the flag adds to a container, with a warning for everything that is missing on the host."""
            ...

        def examine_driver(self, host: HostFacts) -> DriverReport:
            """The state of the driver on this host, for doctor."""
            ...


class Switch:
    """One flag of a vendor: its name, its help text, and the variables that stand for it."""

    __slots__ = ("attribute", "help", "name", "variables")

    def __init__(self, name: str, help: str, variables: str) -> None:
        self.name = name
        self.help = help
        self.variables = variables  # without KEDGE_, APPTAINER_, SINGULARITY_; separated by spaces
        self.attribute = name.replace("-", "_")  # of RunOptions


class Vendor:
    """One row."""

    __slots__ = (
        *("cdi_kind", "enroot_variables", "flag", "grant", "image_variables", "in_apptainer", "module", "name", "node"),
        *("off", "on", "platform", "selectors"),
    )

    def __init__(
        self,
        name: str,
        on: tuple[Switch, ...],
        off: Switch,
        *,
        module: str,
        platform: str,
        node: str,
        grant: str = "",
        image_variables: tuple[str, ...] = (),
        selectors: tuple[str, ...] = (),
        cdi_kind: str = "",
        enroot_variables: dict[str, str] | None = None,
        in_apptainer: bool = True,
    ) -> None:
        self.name = name
        self.on = on  # flags that ask for its GPUs, the usual one first
        self.off = off  # the flag that overrules them
        self.flag = f"--{on[0].name}"
        self.module = module  # in kedge.runtime.devices
        self.platform = platform  # what images for its GPUs are built with
        self.node = node  # the device node of a loaded driver
        self.grant = grant  # variable in which a scheduler names the GPUs of a job; empty: a forgotten flag goes unsaid
        self.image_variables = image_variables  # variables that only images for its GPUs set
        self.selectors = selectors  # variables by which a user chooses GPUs for a container with a private /dev
        self.cdi_kind = cdi_kind  # its GPUs in CDI files, which Podman reads
        self.enroot_variables = enroot_variables or {}  # what makes Enroot's own hook bring its GPUs; with defaults
        self.in_apptainer = in_apptainer  # whether Apptainer and Singularity have the same flags

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of RunOptions that its flags set."""
        return (*(switch.attribute for switch in self.on), self.off.attribute)

    def is_asked(self, options: RunOptions) -> bool:
        """Whether its GPUs are asked for, and no flag overrules that."""
        return not self.is_off(options) and any(getattr(options, switch.attribute) for switch in self.on)

    def is_off(self, options: RunOptions) -> bool:
        """Whether its GPUs are ruled out."""
        return bool(getattr(options, self.off.attribute))

    def load(self) -> VendorModule:
        """Its module."""
        # not importlib, which a start would have to load for it
        module: VendorModule = __import__(f"kedge.runtime.devices.{self.module}", fromlist=("plan_gpus",))
        return module


VENDORS = (
    Vendor(
        "NVIDIA",
        (
            Switch("nv", "add NVIDIA GPUs and the host's driver libraries", "NV"),
            Switch("nvccli", "as --nv; NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES select", "NVCCLI"),
        ),
        Switch("no-nv", "no NVIDIA GPUs, even if a variable or another flag asks for them", "NV_OFF NO_NV"),
        module="nvidia",
        platform="CUDA",
        node="/dev/nvidiactl",
        grant="CUDA_VISIBLE_DEVICES",
        image_variables=("CUDA_VERSION", "NVIDIA_VISIBLE_DEVICES"),
        selectors=("NVIDIA_VISIBLE_DEVICES",),
        cdi_kind="nvidia.com/gpu",
        enroot_variables={"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
    ),
    Vendor(
        "AMD",
        (Switch("rocm", "add AMD GPUs and the host's ROCm libraries", "ROCM"),),
        Switch("no-rocm", "no AMD GPUs, even if a variable or another flag asks for them", "ROCM_OFF NO_ROCM"),
        module="amd",
        platform="ROCm",
        node="/dev/kfd",
    ),
)


def list_switches() -> list[Switch]:
    """The flags of all vendors."""
    return [switch for vendor in VENDORS for switch in (vendor.on[0], vendor.off, *vendor.on[1:])]


def is_granted(environ: Mapping[str, str]) -> bool:
    """Whether a scheduler says that it gave this process GPUs, by the variable of any vendor."""
    return any(vendor.grant and vendor.grant in environ for vendor in VENDORS)


def find_vendor(name: str) -> Vendor:
    """The row of a vendor."""
    return next(vendor for vendor in VENDORS if vendor.name == name)


def find_other_vendor(view: View, name: str) -> Vendor | None:
    """A vendor other than `name` whose driver is loaded on this host."""
    return next((vendor for vendor in VENDORS if vendor.name != name and view.kind(vendor.node)), None)
