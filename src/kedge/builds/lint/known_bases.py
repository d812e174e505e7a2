# SPDX-License-Identifier: BSD-3-Clause
"""What is known of base images by their names: the frameworks they ship, their shells, and their smaller siblings."""

from __future__ import annotations

import re

_TORCH = frozenset(("torch", "torchvision", "torchaudio", "torchtext", "triton", "pytorch-triton"))
_TENSORFLOW = frozenset(("tensorflow", "tensorflow-gpu", "keras", "tensorboard"))
_FRAMEWORKS = (
    (
        re.compile(r"(?:docker://)?nvcr\.io/nvidia/pytorch\b"),
        _TORCH - {"torchaudio"} | {"apex", "transformer-engine", "flash-attn", "numpy"},
    ),
    (re.compile(r"(?:docker://)?nvcr\.io/nvidia/tensorflow\b"), _TENSORFLOW | {"horovod", "numpy"}),
    (re.compile(r"(?:docker://)?nvcr\.io/nvidia/jax\b"), frozenset(("jax", "jaxlib"))),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?pytorch/pytorch\b"), _TORCH - {"torchtext"}),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?rocm/pytorch\b"), _TORCH),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?tensorflow/tensorflow\b"), _TENSORFLOW),
)
_NVIDIA = re.compile(r"(?:docker://)?nvcr\.io/nvidia/(?:pytorch|tensorflow|jax)\b")
_DEBIAN = re.compile(
    r"(?:\A|/)(?:ubuntu|debian)\b|ubuntu\d|\b(?:bookworm|bullseye|buster|stretch|trixie|jammy|focal|bionic|xenial|noble)\b"
    r"|(?:\A|/)python:3[\d.]*(?:-slim)?\Z|pytorch/pytorch|continuumio/|tensorflow/tensorflow|nvcr\.io/nvidia/(?:pytorch|tensorflow)"
)
_LIBRARY_PATH = re.compile(r"nvidia/cuda\b|nvcr\.io/|pytorch/pytorch|tensorflow/tensorflow:.*gpu|intel/oneapi|rocm/")
_FILE = re.compile(
    r"(?:\.{0,2}/|(?:oci|oci-archive|docker-archive|docker-daemon|host|file):(?!//)|.*\.(?:sif|sqsh|tar)\Z)"
)
_DEVEL = re.compile(r"(?:nvidia/cuda|nvidia/nvhpc|pytorch/pytorch)[^:]*:\S*-devel\b")


def find_shipped(image: str) -> frozenset[str]:
    """The Python packages that an image is taken for, in lower case."""
    return next((names for pattern, names in _FRAMEWORKS if pattern.match(image)), frozenset())


def is_nvidia_framework(image: str) -> bool:
    """Whether its frameworks are NVIDIA's own builds, which PyPI does not have."""
    return _NVIDIA.match(image) is not None


def has_plain_shell(image: str) -> bool:
    """Whether /bin/sh is dash, which has no `source` and no `[[`."""
    return _DEBIAN.search(image) is not None and "alpine" not in image


def sets_library_path(image: str) -> bool:
    """Whether its config sets LD_LIBRARY_PATH."""
    return _LIBRARY_PATH.search(image) is not None


def name_runtime(image: str) -> str:
    """The image without compilers, of one that has them; empty where none is known."""
    return image.replace("-devel", "-runtime", 1) if _DEVEL.search(image) else ""


def is_unpinned(image: str) -> bool:
    """Whether a name in a registry has neither a tag nor a digest, or the tag `latest`."""
    if "@" in image or "$" in image or "{{" in image or not image or _FILE.match(image):
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")
