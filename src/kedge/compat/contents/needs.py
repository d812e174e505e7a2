# SPDX-License-Identifier: BSD-3-Clause
"""What somebody needs of an image (`pytorch>=2.3`, `python=3.10`, `dali`), and the variants of NVIDIA's CUDA images."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.base.patterns import late_pattern
from kedge.compat.contents.tag_filters import VersionRange, read_version_range
from kedge.compat.tables.rows import NgcRelease
from kedge.errors import UsageError

_NEED = late_pattern(r"\s*([A-Za-z][A-Za-z0-9 _-]*?)\s*((?:[<>=]|\d).*)?\Z")
_FRAMEWORKS = {"pytorch": "PyTorch", "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "mxnet": "MXNet"}
_FIELDS = {
    "python": ("Python", "python"),
    "cuda": ("CUDA", "cuda"),
    "cudnn": ("cuDNN", "cudnn"),
    "nccl": ("NCCL", "nccl"),
    "tensorrt": ("TensorRT", "tensorrt"),
    "openmpi": ("Open MPI", "openmpi"),
    "mpi": ("Open MPI", "openmpi"),
    "hpcx": ("HPC-X", "hpcx"),
    "horovod": ("Horovod", "horovod"),
    "dali": ("DALI", "dali"),
    "apex": ("Apex", "apex"),
    "jupyterlab": ("JupyterLab", "jupyterlab"),
    "jupyter": ("JupyterLab", "jupyterlab"),
    "ubuntu": ("Ubuntu", "ubuntu"),
}
VARIANTS = {
    "base": "the CUDA runtime library (cudart) alone, for programs that bring all else; the smallest",
    "runtime": "base, with CUDA's math libraries and NCCL: to run programs",
    "devel": "runtime, with the compiler nvcc, headers and static libraries: to build programs; the largest",
    "cudnn": "cuDNN besides what the tag names: -runtime to run, -devel to build",
}


@frozen
class Need:
    """One thing, and the versions of it that do."""

    text: str  # as it was typed
    title: str  # Python
    field: str  # of NgcRelease
    framework: str = ""  # the framework whose version it is
    versions: VersionRange | None = None  # None: any

    def holds(self, row: NgcRelease) -> bool | None:
        """Whether a tag has it; None where that is unknown."""
        if self.framework and row.framework != self.framework:
            return False if row.framework else None
        value = getattr(row, self.field)
        if self.versions is None:
            return True if value or self.framework else None
        return self.versions.holds(value) if value and value != "yes" else None


def read_need(text: str) -> Need:
    """Parse one value of `--needs`."""
    match = _NEED.match(text)
    name = match[1].lower().replace(" ", "").replace("-", "").replace("_", "") if match else ""
    framework = _FRAMEWORKS.get(name, "")
    if match is None or not (framework or name in _FIELDS):
        known = (*_FRAMEWORKS, *_FIELDS)
        hint = propose(name, known) or f"such as 'pytorch>=2.3', python=3.10 or dali; known are: {', '.join(known)}"
        raise UsageError(f"--needs does not know '{text[:60]}'", hint=hint)
    title, field = (framework, "framework_version") if framework else _FIELDS[name]
    example = f"as in: --needs '{match[1]}>=2.3', --needs {match[1]}=3.10"
    versions = read_version_range(match[2], "--needs", f"versions of {title}", example) if match[2] else None
    return Need(text.strip(), title, field, framework, versions)


@frozen
class NeedsAnswer:
    """Which tags have all that is needed, and how many do not tell."""

    tags: tuple[str, ...]
    unknown: dict[str, int]  # what, and of how many tags
    left_out: int  # tags of which something that is needed is unknown


def choose_by_needs(rows: Sequence[NgcRelease], needs: Sequence[Need]) -> NeedsAnswer:
    """The tags that have it all; one that surely lacks something is not counted among those that do not tell."""
    tags, unknown, left_out = [], dict.fromkeys((need.title for need in needs), 0), 0
    for row in rows:
        answers = {need.title: need.holds(row) for need in needs}
        if all(answers.values()):
            tags.append(row.tag)
        elif False not in answers.values():
            left_out += 1
            for title, answer in answers.items():
                unknown[title] += answer is None
    return NeedsAnswer(tuple(tags), {title: count for title, count in unknown.items() if count}, left_out)


def is_before_release(row: NgcRelease, needs: Sequence[Need]) -> bool:
    """Whether NVIDIA's build of a framework that is needed in a version is of before that version (`2.3.0a0+…`)."""
    asked = any(need.framework and need.versions is not None for need in needs)
    return asked and "a0" in row.framework_version


def has_variant(tag: str, variant: str) -> bool:
    """Whether a tag of a CUDA image is of a variant; those with cuDNN are one of their own."""
    words = tag.split("-")
    has_cudnn = any(word.startswith("cudnn") for word in words)
    return has_cudnn if variant == "cudnn" else variant in words and not has_cudnn
