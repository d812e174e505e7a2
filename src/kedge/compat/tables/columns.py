# SPDX-License-Identifier: BSD-3-Clause
"""The three tables of `data/`: their columns, and how the cells of a row become one of the values in `rows`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from kedge.base.frozen import frozen
from kedge.base.image_name import is_tag
from kedge.base.patterns import late_pattern
from kedge.compat.tables.rows import CudaRelease, GpuModel, NgcRelease

_Cells = Mapping[str, str]

_VERSION = late_pattern(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}([ .+_-]?[A-Za-z0-9+._~-]+( [A-Za-z0-9]+)*)?\Z")
_LONGEST_VERSION = 80  # characters: those of nightly builds have half of it
_DRIVER = late_pattern(r"[0-9]{2,4}(\.[0-9]{1,4}){0,3}\Z")
_UNSURE = late_pattern(r"(\.xx)?\+?\Z")  # of `418.xx+`: any driver of that branch
_CAPABILITY = late_pattern(r"[1-9][0-9]?\.[0-9][a-f]?\Z")
_CAPABILITIES = late_pattern(
    r"((amd64|arm64): )?[1-9][0-9]?\.[0-9][a-f]?(\+PTX)?( [1-9][0-9]?\.[0-9][a-f]?(\+PTX)?)*\Z"
)
_STATED = late_pattern(r"[1-9][0-9]?\.[0-9]\+ \(stated\)\Z")
_NOTE = late_pattern(r" \(([^()]*)\)\Z")
_IMAGE = late_pattern(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+\Z")
_REGISTRY = late_pattern(r"[.:]|\Alocalhost\Z")
_PATTERN = late_pattern(r"([A-Za-z0-9_.-]+)\{([A-Za-z0-9_.,-]+)\}([A-Za-z0-9_.-]*)\Z")
_DATE = late_pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
KINDS = ("datacenter", "workstation", "consumer", "embedded")


class CellProblem(Exception):
    """A cell that makes no sense; whoever knows the file and the line says so to the user."""

    def __init__(self, column: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.column = column
        self.message = message
        self.hint = hint


@frozen
class TableKind:
    """One of the tables."""

    name: str  # cuda
    file: str  # cuda_driver.csv
    columns: tuple[str, ...]
    key: tuple[str, ...]  # no two rows have the same
    make: Callable[[_Cells], Any]


def _strip_note(text: str) -> str:
    """`3.5` of `3.5 (py2 tag: 2.7)`; as it is where brackets stand in the middle, too."""
    return _NOTE.sub("", text) if text.count("(") == 1 else text


def split_pattern(tag: str) -> tuple[str, tuple[str, ...], str] | None:
    """`12.4.1-`, (`base`, `devel`), `-ubuntu22.04` of `12.4.1-{base,devel}-ubuntu22.04`; None of a plain tag."""
    match = _PATTERN.match(tag)
    return (match[1], tuple(match[2].split(",")), match[3]) if match else None


def _make_cuda(cells: _Cells) -> CudaRelease:
    version = _read_version(cells, "cuda_toolkit")
    if not version:
        raise CellProblem("cuda_toolkit", "there is no version", "write the release, such as 12.4.1")
    stated = _read_driver(cells, "min_driver_linux_x86_64")
    bundled = [_read_driver(cells, f"runfile_bundled_driver_{name}") for name in ("x86_64", "arm64_sbsa", "ppc64le")]
    noted = _read_branches(cells, "compat_host_branches_in_elf_note")
    required = _read_branches(cells, "compat_host_branches_in_cuda_image_require")
    return CudaRelease(
        version=version,
        label=cells["release_label"] or version,
        min_driver=stated or bundled[0],
        minor_floor=_read_driver(cells, "minor_compat_min_driver"),
        compat_branches=noted or required,  # the library itself says it better than the image that carries it
        compat_package=cells["cuda_compat_package"],
        source=_read_source(cells),
    )


def _make_gpu(cells: _Cells) -> GpuModel:
    name, kind = cells["gpu_model"], cells["class"]
    if not name:
        raise CellProblem("gpu_model", "there is no name", "write the model as NVIDIA does, such as NVIDIA H200")
    if kind not in KINDS:
        raise CellProblem("class", f"'{kind}' is no kind of GPU", f"it is one of {', '.join(KINDS)}")
    capability = cells["compute_capability"]
    if not _CAPABILITY.match(capability):
        raise CellProblem("compute_capability", f"'{capability}' is no compute capability", "such as 9.0")
    return GpuModel(
        name=name,
        kind=kind,
        architecture=cells["architecture"],
        capability=capability,
        memory=cells["memory_gb"],
        smi_names=tuple(name.strip() for name in cells["nvidia_smi_names"].split(";") if name.strip()),
        first_cuda=_read_version(cells, "first_cuda"),
        last_cuda="" if cells["last_cuda_toolkit"].startswith("still ") else _read_version(cells, "last_cuda_toolkit"),
        last_driver_branch=_read_branch(cells, "last_driver_branch"),
        takes_forward_compat=_read_forward(cells, "forward_compat_eligible"),
        source=_read_source(cells),
        processor="arm64" if kind == "embedded" or cells["notes"].startswith("arm64 host") else "",
    )


def _make_release(cells: _Cells) -> NgcRelease:
    image, tag = cells["image"], cells["tag"]
    if not _IMAGE.match(image) or not _REGISTRY.search(image.split("/", 1)[0]):
        raise CellProblem("image", f"'{image}' is no image with its registry", "such as nvcr.io/nvidia/pytorch")
    if not is_tag(tag) and not split_pattern(tag):
        hint = "such as 24.03-py3, or 12.4.1-{base,devel}-ubuntu22.04 for several"
        raise CellProblem("tag", f"'{tag}' is no tag", hint)
    return NgcRelease(
        image=image,
        tag=tag,
        framework=cells["framework"],
        framework_version=_read_version(cells, "framework_version"),
        ubuntu=_read_version(cells, "ubuntu"),
        python=_read_version(cells, "python"),
        cuda=_read_version(cells, "cuda_toolkit"),
        cudnn=_read_versions(cells, "cudnn"),
        nccl=_read_versions(cells, "nccl"),
        tensorrt=_read_version(cells, "tensorrt"),
        openmpi=_read_version(cells, "openmpi"),
        hpcx=_read_version(cells, "hpcx"),
        horovod=_read_inclusion(cells, "horovod"),
        dali=_read_inclusion(cells, "dali"),
        apex=_read_inclusion(cells, "apex"),
        jupyterlab=_read_inclusion(cells, "jupyterlab"),
        min_driver=_read_driver(cells, "min_driver_stated"),
        compat_branches=_read_branches(cells, "datacenter_compat_drivers_stated"),
        bundled_driver=_read_driver(cells, "bundled_driver_CUDA_DRIVER_VERSION"),
        capabilities=_read_capabilities(cells, "compute_capabilities"),
        release_date=_read_date(cells, "release_date"),
        same_month=cells["same_month_base_fields"],
        notes=cells["notes"],
        source=_read_source(cells),
    )


def _read_source(cells: _Cells) -> str:
    if not cells["source"]:
        raise CellProblem(
            "source", "there is no source", "say where the figures are from: an address, or who read what"
        )
    return cells["source"]


def _read_version(cells: _Cells, column: str) -> str:
    """A version, without the note behind it; two of them may stand beside each other for two architectures."""
    return _clean_cell(cells, column, _clean_version, ("version", "a version begins with a number, such as 12.4.1"))


def _read_inclusion(cells: _Cells, column: str) -> str:
    """A version, or `yes` where the source names the program without one."""
    return "yes" if cells[column] == "yes" else _read_version(cells, column)


def _read_versions(cells: _Cells, column: str) -> str:
    """`8.2.4.12;8.2.4.15` of a row for several tags stays so; the `-1` of packages goes."""
    return _clean_cell(cells, column, _clean_versions, ("version", "a version begins with a number, such as 8.9.7"))


def _read_driver(cells: _Cells, column: str) -> str:
    """`418` of `418.xx+`."""
    words = ("version of a driver", "such as 535.104.05, or 470 for a branch")
    return _clean_cell(cells, column, _clean_driver, words)


def _clean_cell(cells: _Cells, column: str, clean: Callable[[str], str | None], words: tuple[str, str]) -> str:
    """What `clean` makes of a cell that is not empty; `words` say what it should be, and how that is written."""
    text = cells[column]
    value = clean(text) if text else ""
    if value is None:
        raise CellProblem(column, f"'{text}' is no {words[0]}", words[1])
    return value


def _read_branches(cells: _Cells, column: str) -> tuple[int, ...]:
    """(384, 410) of `384.111+;410`."""
    text = cells[column]
    branches = _clean_branches(text) if text else ()
    if branches is None:
        raise CellProblem(column, f"'{text}' is no list of driver branches", "such as 470;525;535")
    return branches


# The same few texts stand in most rows: each is looked at once.


@functools.lru_cache(maxsize=2048)
def _clean_version(text: str) -> str | None:
    plain = _strip_note(text)
    return (
        plain
        if len(plain) <= _LONGEST_VERSION and all(_VERSION.match(_strip_note(part)) for part in plain.split(" / "))
        else None
    )


@functools.lru_cache(maxsize=2048)
def _clean_versions(text: str) -> str | None:
    versions = [part.strip().removesuffix("-1") for part in _strip_note(text).split(";")]
    is_good = all(len(part) <= _LONGEST_VERSION and _VERSION.match(part) for part in versions)
    return ";".join(dict.fromkeys(versions)) if is_good else None


@functools.lru_cache(maxsize=2048)
def _clean_driver(text: str) -> str | None:
    plain = _UNSURE.sub("", _strip_note(text))
    return plain if _DRIVER.match(plain) else None


@functools.lru_cache(maxsize=2048)
def _clean_branches(text: str) -> tuple[int, ...] | None:
    drivers = [_clean_driver(part.strip()) for part in _strip_note(text).split(";")]
    return tuple(int(part.split(".")[0]) for part in drivers if part) if all(drivers) else None


def _read_branch(cells: _Cells, column: str) -> int | None:
    text = cells[column]
    if text == "current":
        return None
    if not re.fullmatch(r"R?[0-9]{3,4}", text):
        raise CellProblem(column, f"'{text}' is no driver branch", "such as R470, or current")
    return int(text.removeprefix("R"))


def _read_forward(cells: _Cells, column: str) -> bool | None:
    word = cells[column].split(" ", 1)[0]
    if word in ("yes", "no"):
        return word == "yes"
    if word in ("selected", "own"):  # some boards of the kind, or Jetson's own rules
        return None
    raise CellProblem(column, f"'{cells[column]}' says neither yes nor no", "begin it with yes, no, selected or own")


def _read_capabilities(cells: _Cells, column: str) -> str:
    """The lists of images and what notes state, without the remarks on where a list was seen."""
    found = []
    for part in cells[column].split("; ") if cells[column] else ():
        text = part if part.endswith(" (stated)") else _strip_note(part)
        if not _STATED.match(text) and not _CAPABILITIES.match(text):
            raise CellProblem(column, f"'{text}' is no list of GPU architectures", "such as 7.5 8.0 8.6 9.0+PTX")
        found.append(text)
    return "; ".join(found)


def _read_date(cells: _Cells, column: str) -> str:
    if cells[column] and not _DATE.match(cells[column]):
        raise CellProblem(column, f"'{cells[column]}' is no date", "such as 2025-12-22")
    return cells[column]


CUDA = TableKind(
    "cuda",
    "cuda_driver.csv",
    (
        "cuda_toolkit",
        "release_label",
        "min_driver_linux_x86_64",
        "runfile_bundled_driver_x86_64",
        "runfile_bundled_driver_arm64_sbsa",
        "runfile_bundled_driver_ppc64le",
        "minor_compat_min_driver",
        "minor_compat_range_upper",
        "minor_compat_note",
        "cuda_compat_package",
        "compat_host_branches_in_cuda_image_require",
        "compat_host_branches_in_elf_note",
        "notes",
        "source",
    ),
    ("cuda_toolkit",),
    _make_cuda,
)
GPUS = TableKind(
    "gpus",
    "gpu_arch.csv",
    (
        "gpu_model",
        "class",
        "architecture",
        "compute_capability",
        "memory_gb",
        "nvidia_smi_names",
        "first_cuda",
        "last_cuda_toolkit",
        "last_driver_branch",
        "ngc_pytorch_newest_with_native_kernels",
        "forward_compat_eligible",
        "mig",
        "notes",
        "source",
    ),
    ("gpu_model",),
    _make_gpu,
)
RELEASES = TableKind(
    "releases",
    "ngc_frameworks.csv",
    (
        "image",
        "tag",
        "release_date",
        "ubuntu",
        "python",
        "framework",
        "framework_version",
        "cuda_toolkit",
        "cudnn",
        "nccl",
        "min_driver_stated",
        "datacenter_compat_drivers_stated",
        "bundled_driver_CUDA_DRIVER_VERSION",
        "compute_capabilities",
        "openmpi",
        "hpcx",
        "tensorrt",
        "horovod",
        "dali",
        "apex",
        "jupyterlab",
        "same_month_base_fields",
        "notes",
        "source",
    ),
    ("image", "tag"),
    _make_release,
)
TABLE_KINDS = (CUDA, GPUS, RELEASES)
