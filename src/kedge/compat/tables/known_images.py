# SPDX-License-Identifier: BSD-3-Clause
"""Images by what people do with them: tasks, GPUs that NVIDIA's own have left, base images of sites. Each has a source.

The table is read by who searches, and of images that no registry can be asked about.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from kedge.base.frozen import frozen
from kedge.compat.tables.columns import CellProblem, TableKind
from kedge.compat.tables.load import read_shipped

_ANSWERS = {"": None, "yes": True, "no": False}


@frozen
class KnownImage:
    """One image for one task."""

    image: str  # docker.io/tacc/tacc-ml
    tags: str  # a tag, or a pattern: `*-tf2-py3`
    task: str  # `image classification`; several words for it stand behind commas
    programs: tuple[str, ...]
    python: str
    cuda: str  # `none` where it has no CUDA; empty: unknown
    mpi: str
    gpus: str  # Kepler: made for GPUs that others leave out
    systems: tuple[str, ...]
    multi_gpu: bool | None  # None: unknown
    multi_node: bool | None
    warning: str
    notes: str
    source: str

    @property
    def is_pattern(self) -> bool:
        """Whether `tags` stands for several."""
        return "*" in self.tags

    def has_words(self, words: Sequence[str]) -> bool:
        """Whether all words stand in what it is called, made for and known to do; `resnet50` finds `ResNet-50`."""
        does = [name for name, answer in (("multi-GPU", self.multi_gpu), ("multi-node", self.multi_node)) if answer]
        named = (self.image, self.tags, self.task, *self.programs, self.mpi, self.gpus, *self.systems, *does)
        text = " ".join(named).lower()
        return all(word.lower() in text or _join(word.lower()) in _join(text) for word in words)

    def describe(self) -> str:
        """`mpi: Intel MPI 19.0.7; no CUDA; for Frontera; multi-GPU: unknown; multi-node: yes`, and its notes."""
        parts = [f"{self.task.partition(',')[0]}: {', '.join(self.programs)}"]
        parts += [f"CUDA {self.cuda}"] if self.cuda not in ("", "none") else ["no CUDA"] if self.cuda else []
        parts += [f"for {', '.join(self.systems)}"] if self.systems else []
        parts += [f"multi-GPU: {_tell(self.multi_gpu)}", f"multi-node: {_tell(self.multi_node)}"]
        parts += [self.notes] if self.notes else []
        return "; ".join(parts)


@functools.lru_cache(maxsize=1)
def load_known_images() -> tuple[KnownImage, ...]:
    """All rows, in the order of the file."""
    rows: tuple[KnownImage, ...] = read_shipped(KNOWN_IMAGES).read_all()
    return rows


def tell_builds(architecture: str, framework: str) -> str:
    """The images of others that are known to serve GPUs of an architecture with a framework; empty: none is known."""
    found = [
        row
        for row in load_known_images()
        if row.gpus == architecture and any(program.startswith(framework) for program in row.programs)
    ]
    return " ".join(
        f"{row.image}:{row.tags} ({', '.join(row.programs)}; Python {row.python}, CUDA {row.cuda}) is reported to work "
        f"on {row.gpus}: {row.notes}. Warning: it is {row.warning}."
        for row in found
    )


def find_known_image(image: str, tag: str) -> KnownImage | None:
    """The row that names this very tag; `tacc/tacc-ml` is Docker Hub's."""
    names = (image, f"docker.io/{image}")
    return next((row for row in load_known_images() if row.image in names and row.tags == tag), None)


def _join(text: str) -> str:
    return text.replace("-", "").replace("_", "")


def _tell(answer: bool | None) -> str:
    return {None: "unknown", True: "yes", False: "no"}[answer]


def _make(cells: Mapping[str, str]) -> KnownImage:
    for column in ("image", "tags", "task", "programs", "source"):
        if not cells[column]:
            raise CellProblem(column, "the cell is empty", "every row names image, tags, task, programs and source")
    for column in ("multi_gpu", "multi_node"):
        if cells[column] not in _ANSWERS:
            raise CellProblem(
                column, f"'{cells[column]}' says neither yes nor no", "leave it empty where it is unknown"
            )
    several = {column: tuple(filter(None, cells[column].split(";"))) for column in ("programs", "systems")}
    answers = {column: _ANSWERS[cells[column]] for column in ("multi_gpu", "multi_node")}
    return KnownImage(**{**cells, **several, **answers})  # type: ignore[arg-type]


KNOWN_IMAGES = TableKind(
    "images",
    "known_images.csv",
    (
        "image",
        "tags",
        "task",
        "programs",
        "python",
        "cuda",
        "mpi",
        "gpus",
        "systems",
        "multi_gpu",
        "multi_node",
        "warning",
        "notes",
        "source",
    ),
    ("image", "tags", "task"),
    _make,
)
