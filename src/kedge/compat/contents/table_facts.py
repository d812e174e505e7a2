# SPDX-License-Identifier: BSD-3-Clause
"""What the table's row says of one tag, as facts; what it says of others of the month becomes a note."""

from __future__ import annotations

from collections.abc import Mapping

from kedge.base.patterns import late_pattern
from kedge.base.versions import order
from kedge.compat.tables.rows import NgcRelease
from kedge.compat.traits import UNKNOWN, Fact
from kedge.image.clean_config import strip_build

TABLE_ONLY = "From built-in tables only"  # begins the note that says so
_PARENTHESIS = late_pattern(r"\s*\(.*\)\s*\Z")
_BY_MACHINE = late_pattern(r"(\S+) \(x86\) / (\S+) \(arm64\)\Z")
_MONTH_NAMES = {
    "ubuntu": ("os", "Ubuntu"),
    "python": ("python", "Python"),
    "cuda_toolkit": ("cuda", "CUDA"),
    "cuda env": ("cuda", "CUDA"),
    "cudnn": ("cudnn", "cuDNN"),
    "nccl": ("nccl", "NCCL"),
    "tensorrt": ("tensorrt", "TensorRT"),
    "openmpi": ("mpi", "Open MPI"),
    "hpcx": ("hpcx", "HPC-X"),
    "min_driver": ("driver", "driver"),
}


def read_row(row: NgcRelease, tag: str, architecture: str) -> dict[str, Fact]:
    """The facts of the row that hold for this tag and architecture, under the names of ImageTraits."""
    source = f"table, {row.image}:{row.tag} ({row.source})"
    values = {
        "framework": row.framework,
        "framework_version": _plain(row.framework_version),
        "python": _python(row.python, tag),
        "cuda": _plain(row.cuda),
        "cudnn": strip_build(_plain(row.cudnn)) if _has_flavour(row, tag, "cudnn") else "",
        "nccl": strip_build(_plain(row.nccl)) if _has_flavour(row, tag, "devel", "runtime") else "",
        "tensorrt": _by_machine(row.tensorrt, architecture) if _has_flavour(row, tag, "tensorrt") else "",
        "mpi": f"Open MPI {row.openmpi}" if row.openmpi else "",
        "hpcx": row.hpcx,
        "horovod": row.horovod,
        "dali": row.dali,
        "apex": row.apex,
        "jupyterlab": row.jupyterlab,
        "os": f"Ubuntu {row.ubuntu}" if row.ubuntu else "",
        "driver": row.bundled_driver,
        # a driver, or the branches that a plain `cuda` image states: either is of the libcuda that it brings
        "compat": "yes" if row.bundled_driver or (row.compat_branches and row.image.endswith("/cuda")) else "",
        "compat_branches": " ".join(str(branch) for branch in sorted(row.compat_branches)),
        "capabilities": row.capabilities_on(architecture),
    }
    return {name: Fact(value, source) if value else UNKNOWN for name, value in values.items()}


def list_row_notes(row: NgcRelease, known: Mapping[str, Fact]) -> list[str]:
    """What a reader must know of this tag besides the facts, of which `known` has those that are known by now."""
    notes = []
    if row.is_end_of_life:
        notes.append("NVIDIA deletes tags of this release line (end of life): keep the SIF file and its digest")
    month = _describe_month(row.same_month, known)
    if month:
        notes.append(f"stated for other images of the same month, not for this tag: {month}")
    if row.min_driver:
        stated = row.min_driver.replace(".xx", "").rstrip("+")
        notes.append(f"NVIDIA's release notes require driver {stated} or newer")
    return notes


def _describe_month(text: str, known: Mapping[str, Fact]) -> str:
    """`CUDA 11.3.1, NCCL 2.9.9 (TensorFlow 21.06 notes)`: what is unknown of the tag itself."""
    pairs, _, source = text.partition(" (")
    parts = []
    for pair in pairs.split(";"):
        key, _, value = pair.partition("=")
        name, title = _MONTH_NAMES.get(key.strip(), ("", ""))
        if title and not known.get(name, UNKNOWN):
            parts.append(f"{title} {value.strip()}")
    return f"{', '.join(parts)} ({source}" if parts and source else ", ".join(parts)


def _has_flavour(row: NgcRelease, tag: str, *words: str) -> bool:
    return not row.image.endswith("/cuda") or any(word in tag for word in words)


def _plain(text: str) -> str:
    """A value, where the row has one alone: rows of several tags list all that occur."""
    value = _PARENTHESIS.sub("", text).strip()
    return "" if ";" in value or "$" in value or "/" in value else value


def _python(text: str, tag: str) -> str:
    if "py2" in tag.split("-") and "(py2 tag: " in text:
        return text.partition("(py2 tag: ")[2].rstrip(")")
    value = _plain(text)
    return value if len(order(value)) > 1 else ""


def _by_machine(text: str, architecture: str) -> str:
    match = _BY_MACHINE.match(text)
    if match:
        return match[2] if architecture == "arm64" else match[1]
    return _plain(text)
