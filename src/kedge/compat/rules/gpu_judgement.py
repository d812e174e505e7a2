# SPDX-License-Identifier: BSD-3-Clause
"""One image on one kind of GPU: what the rules of driver and kernels say, and what the two come to."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.base.versions import order
from kedge.compat.rules import compute_capability_rule as kernel_rule
from kedge.compat.rules import driver_rule
from kedge.compat.rules.compute_capability_rule import read_kernels
from kedge.compat.rules.compute_capability_text import Subject, show_capability, tell_kernels
from kedge.compat.rules.driver_lookup import find_machine, find_need
from kedge.compat.rules.driver_text import name_cuda, name_libcuda, tell_driver
from kedge.compat.tables.gpu_names import AMD
from kedge.compat.tables.load import normalize_image
from kedge.compat.verdict import FAIL, FORWARD, MINOR, NATIVE, NO, NOTE, OK, OPEN, PTX, UNKNOWN, WARNING, Judgement

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables
    from kedge.compat.tables.rows import NgcRelease
    from kedge.compat.target import Gpu, Target
    from kedge.compat.traits import ImageTraits

RANKS = (NATIVE, MINOR, FORWARD, PTX, UNKNOWN, NO)  # what is worse decides
_LEVELS = {NATIVE: OK, FORWARD: NOTE, MINOR: WARNING, PTX: WARNING, NO: FAIL, UNKNOWN: OPEN}
_ROCM = "Take an image for ROCm (such as rocm/pytorch on Docker Hub) and start it with --rocm, or use NVIDIA GPUs."
_NO_LIST = "The list of kernels of this release is unknown"
_FROM_PTX = "its kernels are compiled from PTX when a program starts"
_NATIVE_TAG = "Take a tag with CUDA {cuda} or newer: the cuDNN and cuBLAS of older ones may have no code for that GPU."
_MONTHLY = 2  # fields of 24.03
_TOOLKITS = ("CUDA", "CUDA DL", "NVIDIA HPC SDK")  # what images are called that hold no GPU programs of their own


@frozen
class GpuJudgement:
    """What comes of one kind of GPU."""

    gpu: Gpu
    outcome: str
    driver: Judgement
    kernels: Judgement
    reason: str  # in short, for the headline; empty where it runs natively


def judge_gpu(traits: ImageTraits, target: Target, gpu: Gpu, tables: Tables) -> GpuJudgement:
    """Driver and kernels, for one kind of GPU of the target."""
    if gpu.brand == AMD:
        return _judge_amd(traits, gpu)
    need, machine = find_need(traits, tables), find_machine(target, gpu, tables)
    answer = driver_rule.judge_driver(need, machine)
    sentence, remedy = tell_driver(need, machine, answer, gpu.name)
    driver = Judgement("driver", _LEVELS[answer.mode], sentence, remedy, answer.mode)
    if answer.reason == driver_rule.NO_CUDA:
        driver = Judgement("driver", NOTE, sentence, remedy, UNKNOWN)
    kernels, short = _judge_image_kernels(traits, gpu, tables, accepts_ptx=answer.accepts_ptx, driver=target.driver)
    outcome = max(driver.outcome, kernels.outcome, key=RANKS.index)
    if driver.outcome == outcome:
        short = _shorten_driver(answer, need, machine)
    return GpuJudgement(gpu, outcome, driver, kernels, short)


def _judge_amd(traits: ImageTraits, gpu: Gpu) -> GpuJudgement:
    """Another maker's: images for CUDA do not run there; of those for ROCm the tables know nothing."""
    if traits.cuda or traits.driver:
        made = f" (this one is for CUDA {'.'.join(traits.cuda.value.split('.')[:3])})" if traits.cuda else ""
        sentence = f"CUDA images do not run on AMD GPUs such as {gpu.name}{made}: CUDA is NVIDIA's."
        judgement = Judgement("gpu", FAIL, sentence, _ROCM, NO)
        return GpuJudgement(gpu, NO, judgement, judgement, "CUDA images do not run on AMD GPUs")
    sentence = f"{gpu.name} needs an image for ROCm; it is unknown whether the ROCm of this one supports it."
    judgement = Judgement("gpu", OPEN, sentence, "", UNKNOWN)
    return GpuJudgement(gpu, UNKNOWN, judgement, judgement, "its support for AMD GPUs is unknown")


def _judge_image_kernels(
    traits: ImageTraits, gpu: Gpu, tables: Tables, *, accepts_ptx: bool | None = True, driver: str = ""
) -> tuple[Judgement, str]:
    """Whether the image has code for a GPU under a driver that compiles its PTX or not; and the reason in short."""
    cuda, cuda_range = traits.cuda.value, (gpu.first_cuda, gpu.last_cuda)
    answer = kernel_rule.judge_kernels(
        traits.capabilities.value,
        gpu.capability,
        architecture=traits.architecture,
        cuda=cuda,
        cuda_range=cuda_range,
        accepts_ptx=accepts_ptx,
        is_toolkit=traits.framework.value in _TOOLKITS,
        is_jetson=gpu.kind == "embedded",
    )
    subject = Subject(gpu.name, gpu.capability, cuda=cuda, cuda_range=cuda_range, driver=driver)
    if answer.reason in (kernel_rule.NO_LIST, kernel_rule.BELOW_STATED, kernel_rule.CUDA_TOO_OLD):
        is_too_old = answer.reason == kernel_rule.CUDA_TOO_OLD
        around = _judge_by_neighbours(traits, subject, tables, needs_ptx=is_too_old and bool(accepts_ptx))
        if around is not None:
            return around, _FROM_PTX if around.outcome == PTX else "it has no kernels for that GPU"
    sentence, remedy = tell_kernels(answer, subject)
    level = WARNING if answer.reason in (kernel_rule.BELOW_STATED, kernel_rule.CUDA_TOO_OLD) else None
    judgement = Judgement("gpu", level or _LEVELS[answer.mode], sentence, remedy, answer.mode)
    return judgement, _shorten_kernels(answer, subject)


def _judge_by_neighbours(traits: ImageTraits, subject: Subject, tables: Tables, *, needs_ptx: bool) -> Judgement | None:
    """Judge a release without a list: GPUs come and go once, so it has what those before and after it both have.

    `needs_ptx`: its toolkit makes no code for the GPU yet, and the driver compiles PTX of that toolkit.
    """
    before, after = _find_neighbours(traits, tables)
    first, second = (_read_row(row, subject, traits.architecture) for row in (before, after))
    if before and first and first.reason == kernel_rule.OLDER:
        sentence = (
            f"{_NO_LIST}, but the earlier {before.tag} has none for GPUs as old as {subject}: it has "
            f"{first.kernels.show()}."
        )
        return Judgement("gpu", FAIL, sentence, "Take another GPU.", NO)
    if before and after and first and second and first.mode == second.mode == NATIVE:
        sentence = f"{_NO_LIST}, but the releases before and after it, {before.tag} and {after.tag}, support {subject}."
        return Judgement("gpu", NOTE, sentence, "", NATIVE)
    if before and after and first and second and needs_ptx and first.mode == PTX and second.mode in (NATIVE, PTX):
        sentence = (
            f"{_NO_LIST}, but the earlier {before.tag} has PTX for {subject}, and the later {after.tag} runs there, "
            f"too: the driver compiles the kernels when a program starts."
        )
        return Judgement("gpu", _LEVELS[PTX], sentence, _NATIVE_TAG.format(cuda=subject.cuda_range[0]), PTX)
    return _judge_by_statements(traits, subject, tables)


def _judge_by_statements(traits: ImageTraits, subject: Subject, tables: Tables) -> Judgement | None:
    """Judge a release by what NVIDIA's notes state of the releases before and after."""
    before, after = _find_neighbours(traits, tables, is_stated=True)
    if before is None or after is None:
        return None
    stated = show_capability(max(read_kernels(row.capabilities).stated or (0, 0) for row in (before, after)))
    answer = kernel_rule.judge_kernels(
        f"{stated}+", subject.capability, cuda=subject.cuda, cuda_range=subject.cuda_range
    )
    if answer.mode != NATIVE:
        return None
    sentence = (
        f"{_NO_LIST}, but NVIDIA states that the releases before and after it, {before.tag} and {after.tag}, support "
        f"compute capability {stated} and newer, which includes {subject}."
    )
    return Judgement("gpu", NOTE, sentence, "", NATIVE)


def _find_neighbours(
    traits: ImageTraits, tables: Tables, *, is_stated: bool = False
) -> tuple[NgcRelease | None, NgcRelease | None]:
    """The nearest release before and after the image's that has a list of kernels for its architecture.

    `is_stated`: of which NVIDIA states from which GPU on they serve.
    """
    release = order(traits.release.value)
    if len(release) < _MONTHLY:
        return None, None
    pairs = _list_kernels(tables, normalize_image(traits.name), traits.architecture, is_stated)
    before = [pair for pair in pairs if pair[0] < release]
    after = [pair for pair in pairs if pair[0] > release]
    return (
        max(before, key=lambda pair: pair[0])[1] if before else None,
        min(after, key=lambda pair: pair[0])[1] if after else None,
    )


@functools.lru_cache(maxsize=16)
def _list_kernels(
    tables: Tables, image: str, architecture: str, is_stated: bool
) -> tuple[tuple[tuple[int, ...], NgcRelease], ...]:
    """Return the releases of an image with a list of kernels, each with its version; its tags ask for the same."""
    pairs = []
    for row in tables.list_releases(image):
        listed = row.capabilities if is_stated else row.capabilities_on(architecture)
        kernels = read_kernels(listed)
        if kernels.stated is not None if is_stated else kernels:
            pairs.append((order(row.tag), row))
    return tuple(pairs)


def _read_row(row: NgcRelease | None, subject: Subject, architecture: str) -> kernel_rule.KernelAnswer | None:
    if row is None:
        return None
    return kernel_rule.judge_kernels(row.capabilities_on(architecture), subject.capability)


def _shorten_driver(
    answer: driver_rule.DriverAnswer, need: driver_rule.DriverNeed, machine: driver_rule.HostDriver
) -> str:
    """The reason in a few words, for the headline."""
    cuda = name_cuda(need)
    reasons = {
        driver_rule.TOO_OLD: f"driver {machine.driver} is too old for {cuda}",
        driver_rule.NO_LONGER_DRIVEN: f"driver {machine.driver} is too new for that GPU",
        driver_rule.NOT_YET_DRIVEN: f"driver {machine.driver} is too old for that GPU",
        driver_rule.NO_CUDA: "its CUDA version is unknown",
        driver_rule.NO_DRIVER: "the driver is unknown",
        driver_rule.SHORT_DRIVER: f"driver {machine.driver} is incomplete",
        driver_rule.NEEDS_NOT_KNOWN: f"the driver that {cuda} needs is unknown",
        driver_rule.COMPAT_NOT_KNOWN: "it is unknown whether the image has a newer libcuda",
        driver_rule.BRANCHES_NOT_KNOWN: "the drivers that the image's own libcuda works with are unknown",
        driver_rule.KIND_OF_GPU_NOT_KNOWN: "it is unknown whether that GPU works with the image's own libcuda",
        driver_rule.SAME_MAJOR: "the driver cannot compile PTX at run time",
        driver_rule.IMAGE_LIBCUDA: f"kedge uses the image's own {name_libcuda(need)}",
    }
    return reasons.get(answer.reason, "")


def _shorten_kernels(answer: kernel_rule.KernelAnswer, subject: Subject) -> str:
    reasons = {
        kernel_rule.FROM_PTX: _FROM_PTX,
        kernel_rule.PTX_OPEN: "it has no kernels for that GPU, and it is unknown whether its PTX is compiled",
        kernel_rule.PTX_REFUSED: "it has no kernels for that GPU, and the driver cannot compile its PTX",
        kernel_rule.CUDA_TOO_NEW: f"CUDA {subject.cuda} does not support that GPU any more",
        kernel_rule.CUDA_TOO_OLD: f"CUDA {subject.cuda} does not support that GPU yet",
        kernel_rule.BELOW_STATED: "NVIDIA states that the image is for newer GPUs",
        kernel_rule.NO_CAPABILITY: "the compute capability of the GPU is unknown"
        if subject.gpu
        else "the GPU is unknown",
    }
    fallback = "it has no kernels for that GPU" if answer.mode == NO else "its list of kernels is unknown"
    return reasons.get(answer.reason, fallback)
