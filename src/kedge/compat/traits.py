# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image, as far as it is known, and where each fact is from. Nothing is guessed."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen

# The order in which people are told; the words they read.
TITLES = {
    "framework": "Framework",
    "framework_version": "Framework version",
    "release": "NGC release",
    "python": "Python",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "tensorrt": "TensorRT",
    "mpi": "MPI",
    "hpcx": "HPC-X",
    "ucx": "UCX",
    "horovod": "Horovod",
    "dali": "DALI",
    "apex": "Apex",
    "jupyterlab": "JupyterLab",
    "os": "System",
    "glibc": "glibc",
    "driver": "Built for driver",
    "capabilities": "GPU architectures",
}


@frozen
class Fact:
    """A value and where it is from; an empty value means that it is unknown."""

    value: str = ""
    source: str = ""  # `image config, PYTORCH_VERSION`; `table: ADDRESS`; `the tag`; `file /etc/os-release`

    def __bool__(self) -> bool:
        return bool(self.value)


UNKNOWN = Fact()


@frozen
class Layer:
    """One layer of an image."""

    size: int  # bytes, compressed, as the registry or the file has it
    digest: str = ""
    created_by: str = ""  # the history's line, in short


@frozen
class ImageTraits(JsonValue):
    """One image for one CPU architecture."""

    name: str  # reference without scheme, or path
    framework: Fact = UNKNOWN  # PyTorch, TensorFlow, CUDA, …
    framework_version: Fact = UNKNOWN
    release: Fact = UNKNOWN  # 24.03
    python: Fact = UNKNOWN
    cuda: Fact = UNKNOWN  # 12.4.0.041: the toolkit
    cudnn: Fact = UNKNOWN
    nccl: Fact = UNKNOWN
    tensorrt: Fact = UNKNOWN
    mpi: Fact = UNKNOWN  # `Open MPI 4.1.7`: family and version
    hpcx: Fact = UNKNOWN
    ucx: Fact = UNKNOWN
    horovod: Fact = UNKNOWN  # a version, or `yes`; so the next three
    dali: Fact = UNKNOWN
    apex: Fact = UNKNOWN
    jupyterlab: Fact = UNKNOWN
    os: Fact = UNKNOWN  # `Ubuntu 22.04`
    glibc: Fact = UNKNOWN
    driver: Fact = UNKNOWN  # 545.23.08: the user-mode driver it brings, or was built for
    compat: Fact = UNKNOWN  # `yes` where it carries CUDA's forward-compatibility libraries; else empty: unknown
    compat_branches: Fact = UNKNOWN  # `470 525 535`: host driver branches those libraries run on
    capabilities: Fact = UNKNOWN  # `7.5 8.0 8.6 9.0+PTX`: native kernels, as the image lists them
    requires: tuple[tuple[str, str], ...] = ()  # NVIDIA_REQUIRE_* as the image has them
    disables_requires: bool = False
    architecture: str = ""  # amd64
    architectures: tuple[str, ...] = ()  # all there are under this name; empty: unknown
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    digest: str = ""
    created: str = ""
    size: int | None = None  # bytes to download, or of the file
    layers: tuple[Layer, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader must know: deleted lines, values that contradict each other

    @property
    def known(self) -> dict[str, Fact]:
        """The facts of TITLES, in that order, known or not."""
        return {name: getattr(self, name) for name in TITLES}

    @property
    def tells_processors(self) -> bool:
        """Whether the image's architectures are known; else `architecture` is no more than what was asked for."""
        return bool(self.digest or self.architectures or self.size is not None)
