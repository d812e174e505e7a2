# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the three tables, as `tables` reads them."""

from __future__ import annotations

from kedge.base.frozen import frozen


@frozen
class CudaRelease:
    """One CUDA toolkit release and the drivers it runs on."""

    version: str  # 12.4.1
    label: str  # `12.4 Update 1`
    min_driver: str  # Linux; of the release notes, or else the driver that the installer bundles; empty: unknown
    minor_floor: str  # oldest driver of minor-version compatibility: 525.60.13; empty before CUDA 11
    compat_branches: tuple[int, ...]  # host branches of its cuda-compat package; empty: unknown
    compat_package: str
    source: str
    stands_for: str = ""  # another version of the same minor, which has no row of its own: this is the nearest known


@frozen
class GpuModel:
    """One model of GPU."""

    name: str  # `NVIDIA A100 40GB`
    kind: str  # datacenter, workstation, consumer, embedded
    architecture: str  # Ampere
    capability: str  # 8.0
    memory: str
    smi_names: tuple[str, ...]
    first_cuda: str
    last_cuda: str  # empty: current ones
    last_driver_branch: int | None  # None: current ones
    takes_forward_compat: bool | None  # None: some boards of this kind do, others do not
    source: str
    processor: str = ""  # arm64: of the hosts it is built into; empty: of any


@frozen
class NgcRelease:
    """One tag of an NGC image, or one pattern of tags (`12.4.1-{base,devel}-ubuntu22.04`)."""

    image: str  # nvcr.io/nvidia/pytorch
    tag: str
    framework: str = ""
    framework_version: str = ""
    ubuntu: str = ""
    python: str = ""
    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""
    tensorrt: str = ""
    openmpi: str = ""
    hpcx: str = ""
    horovod: str = ""  # a version, or `yes` where it is inside in one that nobody wrote down; so the next three
    dali: str = ""
    apex: str = ""
    jupyterlab: str = ""
    min_driver: str = ""  # as NVIDIA's notes state it
    compat_branches: tuple[int, ...] = ()  # as NVIDIA's notes state them
    bundled_driver: str = ""
    capabilities: str = ""  # `7.0 7.5 8.0+PTX`, or `6.0+ (stated)`; `amd64: LIST; arm64: LIST` where they differ
    release_date: str = ""
    same_month: str = ""  # what other images of the month have; shown as such, never as a fact of this one
    notes: str = ""
    source: str = ""

    def capabilities_on(self, architecture: str) -> str:
        """The list for one CPU architecture, or else what NVIDIA's notes state; empty: unknown.

        A list without an architecture is of amd64: images of arm64 have another one under the same tag.
        """
        stated = ""
        for part in self.capabilities.split("; ") if self.capabilities else ():
            name, colon, listed = part.partition(": ")
            if part.endswith("(stated)"):
                stated = part
            elif (name if colon else "amd64") == (architecture or "amd64"):
                return listed if colon else part
        return stated

    @property
    def is_end_of_life(self) -> bool:
        """Whether NVIDIA deletes tags of this line."""
        return "end-of-life" in self.notes
