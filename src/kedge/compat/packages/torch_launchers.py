# SPDX-License-Identifier: BSD-3-Clause
"""Which program of an image starts the processes of torch.distributed on a node, by the files of its PyTorch.

The program `torchrun` came with PyTorch 1.10, `torch.distributed.run` with 1.9, and its predecessor `launch` sets
LOCAL_RANK only with --use_env. Files are asked, not versions: NVIDIA's builds of 1.9.0a0 and 1.10.0a0 are snapshots
from before and after these changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.compat.packages.python_search import FoundPackage, find_package, find_program
from kedge.image.clean_config import clean_text

if TYPE_CHECKING:
    from kedge.system.views import View

TORCHRUN = ("torchrun",)
_EXAMPLES = "/workspace/examples"  # in NVIDIA's images
_VERSION = re.compile(rb"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"\n]+)", re.MULTILINE)
_SMALL = 1 << 18
_MOST_EXAMPLES = 500
_PLAIN = re.compile(r"[\w./+@=-]+\Z", re.ASCII)  # names of an image that may stand in a script


@frozen
class TorchLauncher:
    """What starts the processes of a node, and why this."""

    words: tuple[str, ...]  # before its options; empty: the image's PyTorch has no launcher
    reason: str  # in one line
    is_elastic: bool = True  # it knows --rdzv_backend and --standalone
    version: str = ""  # of PyTorch; empty: unknown
    is_known: bool = True  # else it is only likely that the program finds it


def find_torch_launcher(view: View, environment: Mapping[str, str]) -> TorchLauncher | None:
    """The launcher of the image's PyTorch; None where no PyTorch is found."""
    program = find_program(view, environment, "torchrun")
    if program:
        return TorchLauncher(TORCHRUN, f"torchrun starts the processes of each node: {program} of the image")
    torch = find_package(view, environment, "torch")
    return describe_torch(view, torch) if torch is not None else None


def describe_torch(view: View, torch: FoundPackage) -> TorchLauncher:
    """The launcher of this PyTorch, whose `torchrun` is not in PATH."""
    version = _read_version(view, torch.directory)
    title = f"PyTorch {version}".strip()
    for words, lacks, is_elastic in _list_launchers(view, torch):
        if all(map(_PLAIN.match, words)):
            reason = f"{' '.join(words)} starts the processes of each node: {title} of the image {lacks}"
            return TorchLauncher(words, reason, is_elastic, version)
    place = clean_text(torch.directory, 200)
    return TorchLauncher((), f"{title} in {place} has no launcher for several processes", False, version)


def _list_launchers(view: View, torch: FoundPackage) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """The launchers, the newest first, each with what the image does not have, and whether it is elastic."""
    python, folder = torch.python or "python", f"{torch.directory}/distributed"
    beside = f"{python.rpartition('/')[0]}/torchrun"
    if "/" in python and view.is_executable(beside):
        yield (beside,), "is not in PATH", True
    if view.kind(f"{folder}/run.py") == "f":
        yield (python, "-m", "torch.distributed.run"), "has no program torchrun", True
    launch = view.read(f"{folder}/launch.py", _SMALL) or b""
    if b"use_env" in launch:
        lacks = "has neither torchrun nor torch.distributed.run"
        yield (python, "-m", "torch.distributed.launch", "--use_env"), lacks, False
    for path in _find_multiproc(view):
        yield (python, path), "has no launcher that sets LOCAL_RANK", False
    if launch:
        lacks = "has no launcher that sets LOCAL_RANK, so the program must take --local_rank"
        yield (python, "-m", "torch.distributed.launch"), lacks, False


def _find_multiproc(view: View) -> Iterator[str]:
    """`multiproc.py` of NVIDIA's examples, where it sets the variables of a rank."""
    for name in view.names(_EXAMPLES)[:_MOST_EXAMPLES]:
        path = f"{_EXAMPLES}/{name}/multiproc.py"
        if b"LOCAL_RANK" in (view.read(path, _SMALL) or b""):
            yield path


def _read_version(view: View, folder: str) -> str:
    match = _VERSION.search(view.read(f"{folder}/version.py", _SMALL) or b"")
    return clean_text(match[1].decode("utf-8", "replace"), 60) if match else ""
