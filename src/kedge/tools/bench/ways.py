# SPDX-License-Identifier: BSD-3-Clause
"""With what an allreduce can be measured in an image: nccl-tests, its torch over NCCL or Gloo, or its MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedge.base.frozen import frozen
from kedge.errors import LaunchRefused
from kedge.launch.probe.answers import read_lines
from kedge.system.process import run_program
from kedge.system.start_kedge import own_command

NCCL_TESTS, NCCL, GLOO, MPI = "nccl-tests", "nccl", "gloo", "mpi"
WAYS = (NCCL_TESTS, NCCL, GLOO, MPI)
_PATIENCE = 300.0  # seconds: the image may have to be unpacked first
# What is looked for in the image, by its own shell: names of programs, and whether its Python has torch
_LOOK = """
for name in all_reduce_perf_mpi all_reduce_perf python3; do
    path=$(command -v "$name") && printf '{"kedge":"program","name":"%s","path":"%s"}\\n' "$name" "$path"
done
python3 -c 'import importlib.util as u; u.find_spec("torch") and print("{\\"kedge\\":\\"torch\\"}")' 2>/dev/null
true
"""


@frozen
class ImageTools:
    """What an image has to measure with."""

    programs: tuple[str, ...] = ()
    has_torch: bool = False
    has_mpi: bool = False


def look_for_tools(image: str, options: Sequence[str], environ: Mapping[str, str], *, has_mpi: bool) -> ImageTools:
    """Ask the image's own shell; an image without one has only its MPI to be measured with."""
    done = run_program(
        own_command("exec", *options, image, "sh", "-c", _LOOK),
        environment=environ,
        timeout=_PATIENCE,
        check=False,
        name="kedge exec",
    )
    found = list(read_lines(done.output.decode(errors="replace")))
    programs = tuple(str(value.get("name", "")) for value in found if value["kedge"] == "program")
    return ImageTools(programs, any(value["kedge"] == "torch" for value in found), has_mpi)


def choose_way(asked: str, tools: ImageTools, *, gpus: int, nodes: int) -> tuple[str, str]:
    """The way and the reason; raises LaunchRefused where the image lacks what was asked for."""
    possible = _list_possible(tools, gpus, nodes)
    if asked and asked != "auto":
        if asked in possible:
            return asked, f"--way {asked}"
        raise LaunchRefused(
            f"--way {asked} is not possible: {_explain(asked, tools, gpus, nodes)}", hint=_hint(possible)
        )
    if not possible:
        raise LaunchRefused(
            "the image has nothing to measure with: no nccl-tests, no torch and no MPI",
            hint="take an image with PyTorch or MPI, such as nvcr.io/nvidia/pytorch",
        )
    reasons = {
        NCCL_TESTS: "the image has nccl-tests",
        NCCL: "the image has torch, and there are GPUs",
        GLOO: "the image has torch, and there are no GPUs",
        MPI: "the image has MPI, and nothing for GPUs",
    }
    return possible[0], reasons[possible[0]]


def _list_possible(tools: ImageTools, gpus: int, nodes: int) -> list[str]:
    """The ways that work, the best first."""
    ways = []
    if gpus and (
        ("all_reduce_perf_mpi" in tools.programs and tools.has_mpi)
        or ("all_reduce_perf" in tools.programs and nodes == 1)
    ):
        ways.append(NCCL_TESTS)
    if tools.has_torch:
        ways += [NCCL, GLOO] if gpus else [GLOO]
    if tools.has_mpi:
        ways.insert(len(ways) if gpus or not tools.has_torch else 0, MPI)
    return ways


def _explain(asked: str, tools: ImageTools, gpus: int, nodes: int) -> str:
    if asked in (NCCL_TESTS, NCCL) and not gpus:
        return "there are no GPUs"
    if asked == NCCL_TESTS and "all_reduce_perf" in tools.programs and nodes > 1:
        return "the image's nccl-tests are built without MPI, which several nodes need"
    return {
        NCCL_TESTS: "the image has no all_reduce_perf",
        NCCL: "the image has no torch",
        GLOO: "the image has no torch",
        MPI: "the image has no MPI",
    }[asked]


def _hint(possible: Sequence[str]) -> str:
    return f"possible here: {', '.join(possible)}" if possible else "take an image with PyTorch or MPI"
