# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are learned from the configs of images: made of what a config says, and written as the shipped table is.

So a learned row can be contributed as it stands. Configs are text that anybody may have written: what does not pass
the table's own checks is left empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from kedge.base.versions import order
from kedge.compat.tables.columns import RELEASES, CellProblem
from kedge.compat.tables.rows import NgcRelease
from kedge.compat.traits import ImageTraits

# The columns of the table, and the facts they come from
_FACTS = {
    "python": "python",
    "framework": "framework",
    "framework_version": "framework_version",
    "cuda_toolkit": "cuda",
    "cudnn": "cudnn",
    "nccl": "nccl",
    "bundled_driver_CUDA_DRIVER_VERSION": "driver",
    "hpcx": "hpcx",
    "tensorrt": "tensorrt",
    "horovod": "horovod",
    "dali": "dali",
}
_LONGEST = 200  # characters of a cell
# What a config can tell; a row that has all of these leaves nothing to learn
_LEARNABLE = ("framework_version", "cuda", "cudnn", "nccl", "bundled_driver", "capabilities")
READ_FROM = "registry config"  # how the source of a learned row begins


def make_row(image: str, tag: str, traits: ImageTraits, source: str) -> NgcRelease | None:
    """The row of one tag; None where the config says nothing that a table holds. Facts from elsewhere are left out."""
    facts = _list_facts(traits)
    empty = dict.fromkeys(RELEASES.columns, "")
    while facts:
        try:
            row: NgcRelease = RELEASES.make({**empty, **facts, "image": image, "tag": tag, "source": source})
            return row
        except CellProblem as problem:
            if problem.column not in facts:  # the name or the tag
                return None
            del facts[problem.column]
    return None


def _list_facts(traits: ImageTraits) -> dict[str, str]:
    """Return the facts of a config by column; those that come from the tag or from a table are left out."""
    known = {name: fact.value for name, fact in traits.known.items() if fact.source.startswith("image ")}
    if traits.compat_branches.source.startswith("image "):
        known["compat_branches"] = traits.compat_branches.value
    cells = {column: known.get(name, "") for column, name in _FACTS.items()}
    system, mpi = known.get("os", ""), known.get("mpi", "")
    cells["ubuntu"] = system.removeprefix("Ubuntu ") if system.startswith("Ubuntu ") else ""
    cells["openmpi"] = mpi.removeprefix("Open MPI ") if mpi.startswith("Open MPI ") else ""
    cells["datacenter_compat_drivers_stated"] = ";".join(known.get("compat_branches", "").split())
    listed = known.get("capabilities", "")
    is_other = traits.architecture not in ("", "amd64")
    cells["compute_capabilities"] = f"{traits.architecture}: {listed}" if listed and is_other else listed
    return {column: value for column, value in cells.items() if _is_plain(value)}


def _is_plain(value: str) -> bool:
    return 0 < len(value) <= _LONGEST and value.isprintable()


def has_all(row: NgcRelease | None) -> bool:
    """Whether a config could tell nothing that the tables need and do not have."""
    return row is not None and all(getattr(row, name) for name in _LEARNABLE)


def was_read(row: NgcRelease) -> bool:
    """Whether the config of the image was read for this row, which then tells no more."""
    return READ_FROM in row.source


def write_rows(rows: Iterable[NgcRelease]) -> bytes:
    """The text of a learned file: columns and order as the shipped table, newest tags first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RELEASES.columns)
    for row in sorted(rows, key=lambda row: (row.image, [-field for field in order(row.tag)], row.tag)):
        writer.writerow(list_cells(row).values())
    return text.getvalue().encode()


def list_cells(row: NgcRelease) -> dict[str, str]:
    """The cells of a row, by column."""
    cells = dict.fromkeys(RELEASES.columns, "")
    for column in ("image", "tag", "release_date", "ubuntu", "python", "framework", "framework_version"):
        cells[column] = getattr(row, column)
    for column in (
        "cudnn",
        "nccl",
        "openmpi",
        "hpcx",
        "tensorrt",
        "horovod",
        "dali",
        "apex",
        "jupyterlab",
        "notes",
        "source",
    ):
        cells[column] = getattr(row, column)
    cells["cuda_toolkit"] = row.cuda
    cells["min_driver_stated"] = row.min_driver
    cells["datacenter_compat_drivers_stated"] = ";".join(str(branch) for branch in row.compat_branches)
    cells["bundled_driver_CUDA_DRIVER_VERSION"] = row.bundled_driver
    cells["compute_capabilities"] = row.capabilities
    cells["same_month_base_fields"] = row.same_month
    return cells
