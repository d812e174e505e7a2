# SPDX-License-Identifier: BSD-3-Clause
"""Which framework an image is of, in which version and which monthly release: the names that publishers give them."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.patterns import late_pattern
from kedge.base.versions import order
from kedge.compat.traits import UNKNOWN, Fact
from kedge.image.clean_config import clean_text

# Framework, the variables with its version, the variables with NVIDIA's monthly release; the first that fits wins.
_FRAMEWORKS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Triton", ("TRITON_SERVER_VERSION",), ("NVIDIA_TRITON_SERVER_VERSION",)),
    ("PyTorch", ("PYTORCH_VERSION", "PYTORCH_BUILD_VERSION"), ("NVIDIA_PYTORCH_VERSION",)),
    ("TensorFlow", ("TENSORFLOW_VERSION", "TF_PACKAGE_VERSION"), ("NVIDIA_TENSORFLOW_VERSION",)),
    ("MXNet", ("MXNET_VERSION", "MX_VERSION"), ("NVIDIA_MXNET_VERSION",)),
    ("JAX", ("JAX_VERSION",), ("NVIDIA_JAX_VERSION",)),
    ("DGL", ("DGL_VERSION",), ("NVIDIA_DGL_VERSION",)),
    ("RAPIDS", ("RAPIDS_VER", "RAPIDS_VERSION"), ()),
    ("NVIDIA HPC SDK", ("NVHPC_VERSION",), ()),
)
_PRODUCTS = {"Triton Server": "Triton", "Triton": "Triton", "Optimized MXNet": "MXNet", "CUDA": ""}
# Images whose tag starts with the version of what they are named after.
_BY_TAG = {"pytorch/pytorch": "PyTorch", "tensorflow/tensorflow": "TensorFlow"}
_TAG_VERSION = late_pattern(r"\d+\.\d+\.\d+(?:[a-z]+\d+)?(?=-|\Z)")
_MONTH = late_pattern(r"\d\d\.\d\d(?:\.\d+)?(?=-|\Z)")
_RELEASED_MONTHLY = frozenset(
    f"nvcr.io/nvidia/{name}"
    for name in ("pytorch", "tensorflow", "mxnet", "jax", "tritonserver", "cuda-dl-base", "tensorrt", "dgl", "nvhpc")
)


def find_framework(
    image: str, tag: str, environment: Mapping[str, str], built_with: Mapping[str, str]
) -> dict[str, Fact]:
    """Framework, its version and the release; `built_with` holds the variables of the history."""
    name, version, release = _read_variables(environment, built_with)
    if not name and image in _BY_TAG:
        name = Fact(_BY_TAG[image], "the image's name")
    if not version and image in _BY_TAG:
        match = _TAG_VERSION.match(tag)
        version = Fact(match[0], "the tag") if match else UNKNOWN
    if not release and image in _RELEASED_MONTHLY:
        month = _MONTH.match(tag)
        release = Fact(month[0], "the tag") if month else UNKNOWN
    if not name and environment.get("CUDA_VERSION"):
        name = Fact("CUDA", "image config, CUDA_VERSION")
    if name.value == "CUDA" and not version and order(environment.get("CUDA_VERSION", "")):
        version = Fact(clean_text(environment["CUDA_VERSION"], 60), "image config, CUDA_VERSION")
    return {"framework": name, "framework_version": version, "release": release}


def _read_variables(environment: Mapping[str, str], built_with: Mapping[str, str]) -> tuple[Fact, Fact, Fact]:
    if not environment and not built_with:  # a row of a table, of which a recommendation reads hundreds
        return UNKNOWN, UNKNOWN, UNKNOWN
    product = clean_text(environment.get("NVIDIA_PRODUCT_NAME", ""))
    wanted = _PRODUCTS.get(product, product)
    for name, versions, releases in _ordered(wanted):
        version = _find(environment, versions, "image config") or _find(built_with, versions, "image history")
        release = _find(environment, releases, "image config")
        if version or release:
            return Fact(name, (version or release).source), version, _shorten(release)
    if wanted:
        return Fact(wanted, "image config, NVIDIA_PRODUCT_NAME"), UNKNOWN, UNKNOWN
    return UNKNOWN, UNKNOWN, UNKNOWN


def _ordered(wanted: str) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
    """The product that the image says it is stands first: images of Triton hold PyTorch, too."""
    return tuple(sorted(_FRAMEWORKS, key=lambda framework: framework[0] != wanted))


def _find(variables: Mapping[str, str], names: tuple[str, ...], where: str) -> Fact:
    for name in names:
        value = clean_text(variables.get(name, ""), 60)
        if order(value):
            return Fact(value, f"{where}, {name}")
    return UNKNOWN


def _shorten(release: Fact) -> Fact:
    """`21.06` of `21.06-tf1`: the month is the release."""
    month = _MONTH.match(release.value)
    return Fact(month[0], release.source) if month else release
