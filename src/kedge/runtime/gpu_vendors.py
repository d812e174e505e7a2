# SPDX-License-Identifier: BSD-3-Clause
"""The vendors of GPUs: one row each. Flags, variables, the plan, other runtimes and doctor loop over this table.

A row holds what is needed before the vendor's own module is loaded; that module knows its driver, and is loaded only
when its GPUs are asked for. A new vendor is a module with the two functions of `devices.VendorModule`, and a row.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.posix.views import View


class Switch:
    """One flag of a vendor: its name, its help text, and the variables that stand for it."""

    __slots__ = ("attribute", "help", "name", "variables")

    def __init__(self, name: str, help: str, variables: str) -> None:
        self.name = name
        self.help = help
        self.variables = variables  # without KEDGE_, APPTAINER_, SINGULARITY_; separated by spaces
        self.attribute = name.replace("-", "_")  # of RunOptions


class Vendor:
    """One row; the attributes below are the defaults."""

    module: str = ""  # in kedge.runtime.devices
    platform: str = ""  # what images for its GPUs are built with
    node: str = ""  # the device node of a loaded driver
    grant: str = ""  # variable in which a scheduler names the GPUs of a job; empty: no hint for a forgotten flag
    image_variables: tuple[str, ...] = ()  # variables that only images for its GPUs set
    selectors: tuple[str, ...] = ()  # variables by which a user chooses GPUs for a container with a private /dev
    cdi_kind: str = ""  # its GPUs in CDI files, which Podman reads
    enroot_variables: Mapping[str, str] = {}  # what makes Enroot's own hook add its GPUs, with defaults
    in_apptainer: bool = True  # whether Apptainer and Singularity have the same flags

    def __init__(self, name: str, on: tuple[Switch, ...], off: Switch, **facts: object) -> None:
        self.name = name
        self.on = on  # flags that ask for its GPUs, the usual one first
        self.off = off  # the flag that overrules them
        self.flag = f"--{on[0].name}"
        for fact, value in facts.items():
            if not hasattr(self, fact):
                raise TypeError(f"Vendor has no '{fact}'")
            setattr(self, fact, value)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of RunOptions that its flags set."""
        return (*(switch.attribute for switch in self.on), self.off.attribute)

    def is_asked(self, options: object) -> bool:
        """Whether its GPUs are asked for, and no flag overrules that."""
        return not self.is_off(options) and any(getattr(options, switch.attribute) for switch in self.on)

    def is_off(self, options: object) -> bool:
        """Whether its GPUs are ruled out."""
        return bool(getattr(options, self.off.attribute))


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
