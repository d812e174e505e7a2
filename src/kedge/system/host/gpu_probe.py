# SPDX-License-Identifier: BSD-3-Clause
"""What the NVIDIA driver says of itself and its GPUs, through NVML, in a child that is not waited for when it hangs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from kedge.base.frozen import frozen
from kedge.system.bounded_children import ANSWERED, LATE, BoundedTask, TaskOutcome, run_bounded
from kedge.system.nvml import NOT_LOADED, NvmlError, ask_nvml
from kedge.system.process import describe_status

NO_PERMISSION, NOT_RUNNING, LOST, RESET, MISMATCH = 4, 9, 15, 16, 18

# What NVML's numbers mean, where a user can meet them.
_MEANINGS = {
    3: "the driver of this node does not support it",
    NO_PERMISSION: "no permission: this user may not open the devices of the driver",
    6: "not found",
    NOT_RUNNING: "the driver is not loaded, or its devices cannot be opened",
    10: "the GPU did not answer in time",
    11: "the GPU's interrupts do not reach the driver",
    12: "a library of the driver is missing",
    13: "the driver's library is too old to answer",
    14: "the GPU's stored data (infoROM) is damaged",
    LOST: "the GPU is lost: it has fallen off the bus or cannot be reached",
    RESET: "the GPU must be reset",
    17: "the operating system or the job's control group blocks access to the GPU",
    MISMATCH: "driver/library version mismatch: the kernel driver and the library have different versions",
    20: "not enough memory",
    999: "unknown driver error",
}
# NVML's brands under the names that NVIDIA_REQUIRE_* has for them.
_BRANDS = (
    *("unknown", "quadro", "tesla", "nvs", "grid", "geforce", "titan", "vapps", "vpc", "vcs", "vws", "cloudgaming"),
    *("quadrortx", "nvidiartx", "nvidia", "geforcertx", "titanrtx"),
)
_FABRIC = ("", "not started", "in progress", "completed")


@frozen
class ProbedGpu:
    """One GPU; what it does not tell is empty or None."""

    name: str = ""
    uuid: str = ""
    capability: str = ""  # 9.0
    brand: str = ""  # as NVIDIA_REQUIRE_* has it
    memory: int | None = None  # bytes
    minor: int | None = None  # its node is /dev/nvidia<minor>
    is_partitioned: bool | None = None  # by MIG
    parts: tuple[str, ...] = ()  # MIG-… names that this process may use
    is_persistent: bool | None = None  # the driver stays initialised while nobody uses the GPU
    fabric: str = ""  # of NVSwitch machines since Hopper: not started, in progress, completed
    problem: str = ""  # why nothing else is known of it


@frozen
class GpuProbe:
    """The driver's answer; or in `problem` why there is none, with NVML's number for it where it gave one."""

    driver: str = ""
    library: str = ""  # the version of the driver that the library is of
    cuda: str = ""  # the newest CUDA that the driver serves
    gpus: tuple[ProbedGpu, ...] = ()
    problem: str = ""
    code: int | None = None
    has_hung: bool = False
    seconds: float = 0.0

    @property
    def has_answered(self) -> bool:
        """Whether the driver told anything."""
        return not self.problem


def probe_gpus(deadline: float = 1.0, library: str = "") -> GpuProbe:
    """Ask the driver; after `deadline` seconds at the latest. `library` is libnvidia-ml's path, if it is known."""
    outcome = run_bounded([BoundedTask("nvml", partial(_ask, library), deadline)], seconds=deadline)["nvml"]
    if outcome.state != ANSWERED:
        return _explain_silence(outcome, deadline)
    try:
        answer = json.loads(outcome.answer)
        probe = _read_answer(answer, outcome.seconds)
    except (ValueError, TypeError, KeyError, RecursionError):
        return GpuProbe(problem="NVML gave an invalid answer", seconds=outcome.seconds)
    return probe


def explain_code(code: int) -> str:
    """Say what one of NVML's numbers means."""
    return _MEANINGS.get(code, f"NVML error {code}")


def _ask(library: str) -> bytes:
    try:
        return json.dumps(ask_nvml(library)).encode()
    except NvmlError as problem:
        return json.dumps({"error": problem.code, "call": problem.call, "text": problem.text}).encode()


def _explain_silence(outcome: TaskOutcome, deadline: float) -> GpuProbe:
    if outcome.state == LATE:
        problem = f"NVML did not answer in {deadline:g} s: the driver or a GPU hangs"
        return GpuProbe(problem=problem, has_hung=True, seconds=outcome.seconds)
    how = describe_status(outcome.status) if outcome.status else "ended without an answer"
    return GpuProbe(problem=f"the process that asked NVML {how}", seconds=outcome.seconds)


def _read_answer(answer: dict[str, Any], seconds: float) -> GpuProbe:
    if "error" in answer:
        code = int(answer["error"])
        if code == NOT_LOADED:
            return GpuProbe(problem=f"libnvidia-ml cannot be loaded: {answer['text']}", seconds=seconds)
        return GpuProbe(problem=f"{explain_code(code)} ({answer['call']}: {code})", code=code, seconds=seconds)
    return GpuProbe(
        driver=answer["driver"],
        library=_read_library(answer["nvml"], answer["driver"]),
        cuda=_read_cuda(answer["cuda"]),
        gpus=tuple(_read_gpu(gpu) for gpu in answer["gpus"]),
        seconds=seconds,
    )


def _read_cuda(number: int | None) -> str:
    """13.0 of 13000, 11.4 of 11040."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def _read_library(text: str, driver: str) -> str:
    """580.95.05 of 13.580.95.05: NVML puts CUDA's major before the driver's version."""
    _, dot, rest = text.partition(".")
    return rest if dot and rest.count(".") >= driver.count(".") else text


def _read_gpu(answer: dict[str, Any]) -> ProbedGpu:
    if "error" in answer:
        return ProbedGpu(problem=f"{explain_code(answer['error'])} ({answer['call']}: {answer['error']})")
    brand, capability, fabric = answer["brand"], answer["capability"], answer["fabric"] or 0
    return ProbedGpu(
        name=answer["name"] or "",
        uuid=answer["uuid"] or "",
        capability=f"{capability[0]}.{capability[1]}" if capability else "",
        brand=_BRANDS[brand] if brand is not None and brand < len(_BRANDS) else "",
        memory=answer["memory"],
        minor=answer["minor"],
        is_partitioned=answer["mig"],
        parts=tuple(answer["parts"]),
        is_persistent=None if answer["persistence"] is None else bool(answer["persistence"]),
        fabric=_FABRIC[fabric] if fabric < len(_FABRIC) else "",
    )
