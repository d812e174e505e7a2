# SPDX-License-Identifier: BSD-3-Clause
"""The sentences that a user reads about driver and CUDA: what is so, why, and what to do. A start may import this."""

from __future__ import annotations

from kedge.base.versions import order
from kedge.compat.rules import driver_rule as rule
from kedge.compat.rules.libcuda_choice import (
    GPU_TOO_OLD,
    HOST_NEWER,
    IMAGE,
    KIND_NOT_KNOWN,
    NOT_DATA_CENTER,
    NOT_LISTED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kedge.compat.rules.driver_rule import DriverAnswer, DriverNeed, HostDriver

_COMPAT_DIRECTORY = "/usr/local/cuda/compat"
_LIMITS = (
    "programs run, but the driver cannot compile PTX at run time (error 222, cudaErrorUnsupportedPtxVersion), and "
    "features of newer drivers are missing."
)
_TOO_OLD = "Programs fail with error 35, 'CUDA driver version is insufficient for CUDA runtime version'."


def tell_driver(need: DriverNeed, machine: HostDriver, answer: DriverAnswer, gpu: str = "") -> tuple[str, str]:
    """What the answer means, and the remedy; the second is empty where nothing is needed."""
    if answer.mode == rule.NATIVE:
        return _tell_native(need, machine, answer), ""
    if answer.mode == rule.FORWARD:
        return _tell_forward(need, machine, gpu), ""
    if answer.mode == rule.MINOR:
        return _tell_minor(need, machine, answer, gpu)
    if answer.reason in (rule.NO_LONGER_DRIVEN, rule.NOT_YET_DRIVEN):
        return _tell_driven(machine, answer, gpu)
    if answer.mode == rule.NO:
        needs = _tell_needs(need)
        sentence = f"{needs}: driver {machine.driver} is too old. {_tell_obstacle(need, answer, gpu)}{_TOO_OLD}"
        return sentence, _tell_remedy(need, machine)
    return _tell_unknown(need, machine, answer)


def name_cuda(need: DriverNeed) -> str:
    """`CUDA 12.3.2`; builds have a fourth number, which says nothing to people."""
    fields = order(need.cuda)[:3] or (need.major,)
    return "CUDA " + ".".join(str(field) for field in fields)


def name_libcuda(need: DriverNeed) -> str:
    """`libcuda 545.23.08`; `libcuda` where the version of the image's is unknown."""
    return f"libcuda {need.built_for}" if need.built_for else "libcuda"


def _tell_needs(need: DriverNeed) -> str:
    """Which drivers it needs, without a full stop."""
    cuda = name_cuda(need)
    if not need.min_driver and need.minor_floor:
        return f"{cuda} needs driver {need.minor_floor} or newer"
    if not need.min_driver:
        return f"The driver that {cuda} needs is unknown"
    if need.major < 11:
        return f"{cuda} needs driver {need.min_driver} or newer, as CUDA before 11 has no minor-version compatibility"
    if order(need.minor_floor)[:1] >= order(need.min_driver)[:1] or not need.minor_floor:
        return f"{cuda} needs driver {need.min_driver} or newer"
    floor = f"{need.minor_floor} or newer by minor-version compatibility"
    return f"{cuda} needs driver {need.min_driver} or newer, or {floor}"


def _tell_remedy(need: DriverNeed, machine: HostDriver) -> str:
    """What to do where the driver is too old."""
    older = f"Take an image for {_name_offer(machine)} or older" if machine.major else "Take an older image"
    wanted = need.minor_floor or need.min_driver
    if machine.last_branch is not None and order(wanted)[:1] > (machine.last_branch,):
        return f"{older}, or another GPU: drivers newer than branch {machine.last_branch} do not support this one."
    newer = f"driver {wanted} or newer" if wanted else "a newer driver"
    return f"{older}, ask the administrators for {newer}, or choose a queue that has it."


def _join_numbers(numbers: Iterable[int], last: str = "and") -> str:
    """`470, 525 and 535`."""
    words = [str(number) for number in numbers]
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _tell_driven(machine: HostDriver, answer: DriverAnswer, gpu: str) -> tuple[str, str]:
    name, driver = gpu or "this GPU", machine.driver
    if answer.reason == rule.NOT_YET_DRIVEN:
        what = f"compute capability {machine.capability} needs" if machine.capability else "such GPUs need"
        sentence = f"Driver {driver} is too old for {name}: {what} driver branch {machine.first_branch} or newer"
        return f"{sentence}. Programs see no GPU.", "Check the driver version: this GPU does not work with it."
    sentence = f"Driver {driver} no longer supports {name}: {machine.last_branch} is the last branch that does"
    remedy = f"Choose a node whose driver is of branch {machine.last_branch} or older, or another GPU."
    return f"{sentence}. Programs see no GPU.", remedy


def _tell_native(need: DriverNeed, machine: HostDriver, answer: DriverAnswer) -> str:
    cuda, driver = name_cuda(need), machine.driver
    if answer.reason == rule.NEW_ENOUGH:
        sentence = f"Driver {driver} is new enough: {cuda} needs {need.min_driver} or newer."
    elif answer.reason == rule.SAME_BRANCH:
        minor = ".".join(str(field) for field in order(need.cuda)[:2]) or str(need.major)
        sentence = (
            f"Driver {driver} runs {cuda}: its branch {order(driver)[0]} introduced CUDA {minor}, although NVIDIA's "
            f"minimum is {need.min_driver}."
        )
    else:
        sentence = f"Driver {driver} supports {_name_offer(machine)}, which also runs {cuda}."
    if answer.uses_image:
        return f"{sentence} kedge uses the image's own {name_libcuda(need)}, which is newer."
    is_older = bool(need.carries_compat and need.built_for) and order(driver)[:1] > order(need.built_for)[:1]
    if answer.obstacle == HOST_NEWER and is_older:
        return f"{sentence} kedge does not use the image's older libcuda {need.built_for}, which can fail (error 803)."
    return sentence


def _tell_forward(need: DriverNeed, machine: HostDriver, gpu: str) -> str:
    which = f" such as {gpu}" if gpu else ""
    return (
        f"Driver {machine.driver} is older than the {need.min_driver} that {name_cuda(need)} needs, but kedge uses the "
        f"image's own {name_libcuda(need)} ({_COMPAT_DIRECTORY}). On data-center GPUs{which} it runs with driver "
        f"branches {_join_numbers(need.branches or ())}."
    )


def _tell_minor(need: DriverNeed, machine: HostDriver, answer: DriverAnswer, gpu: str) -> tuple[str, str]:
    cuda = name_cuda(need)
    asks = f"is older than the {need.min_driver} that {cuda} needs" if need.min_driver else f"may be too old for {cuda}"
    sentence = (
        f"Driver {machine.driver} {asks}, but {need.minor_floor} or newer is enough for CUDA {need.major} "
        f"(minor-version compatibility): {_LIMITS}"
    )
    other = f"driver {need.min_driver} or newer" if need.min_driver else "a newer driver"
    if machine.last_branch is not None and order(need.min_driver)[:1] > (machine.last_branch,):
        other = "another GPU (newer drivers do not support this one)"
    remedy = f"If a program fails with error 222, take an image for {_name_offer(machine)} or older, or {other}."
    if answer.obstacle != IMAGE:
        return f"{sentence} {_tell_obstacle(need, answer, gpu)}".rstrip(), remedy
    carried = "If the image has its own newer libcuda that works with this driver"
    if need.carries_compat:
        branch = order(machine.driver)[0]
        carried = f"If the image's own {name_libcuda(need)} works with driver branch {branch}"
    return f"{sentence} {carried}, kedge uses it and these limits do not apply.", remedy


def _tell_obstacle(need: DriverNeed, answer: DriverAnswer, gpu: str) -> str:
    """Why the image's own libcuda is of no use; ends with a space where there is something to say."""
    own = f"The image's own {name_libcuda(need)}"
    if not need.carries_compat:
        own = "A newer libcuda inside the image"
    if answer.obstacle == NOT_DATA_CENTER:
        return (
            f"{own} does not help: it runs on data-center GPUs only and fails on {gpu or 'others'} with error 804, so "
            f"kedge does not use it. "
        )
    if answer.obstacle == GPU_TOO_OLD:
        return f"{own} does not help: libraries that new no longer support {gpu or 'this GPU'}. "
    if answer.obstacle == NOT_LISTED:
        return f"{own} does not help: it runs with driver branches {_join_numbers(need.branches or ())} only. "
    if answer.obstacle == KIND_NOT_KNOWN:
        return "It is unknown whether this GPU works with the image's own newer libcuda. "
    if need.carries_compat is False:
        return "The image has no newer libcuda of its own. "
    return ""


def _tell_unknown(need: DriverNeed, machine: HostDriver, answer: DriverAnswer) -> tuple[str, str]:
    needs, driver = _tell_needs(need), machine.driver
    if answer.reason == rule.NO_CUDA:
        return "The CUDA version of this image is unknown, and so is what it needs from driver and GPU.", ""
    if answer.reason == rule.NO_DRIVER:
        return f"{needs}. The driver is unknown.", "Give it with --driver VERSION, as nvidia-smi shows it."
    if answer.reason == rule.SHORT_DRIVER:
        return (
            f"{needs}. Driver {driver} is incomplete, and the rest of the version decides.",
            "Give the whole version with --driver, as nvidia-smi shows it.",
        )
    if answer.reason == rule.NEEDS_NOT_KNOWN:
        return f"{needs}, so kedge cannot judge driver {driver}.", ""
    own = f"The image has its own {name_libcuda(need)}"
    reasons = {
        rule.COMPAT_NOT_KNOWN: "It runs only if the image has its own newer libcuda, which is unknown.",
        rule.BRANCHES_NOT_KNOWN: f"{own}, but the older drivers it works with are unknown.",
        rule.KIND_OF_GPU_NOT_KNOWN: f"{own}, which runs on data-center GPUs only; the kind of this GPU is unknown.",
    }
    return f"{needs}: driver {driver} is too old. {reasons[answer.reason]}", _tell_remedy(need, machine)


def _name_offer(machine: HostDriver) -> str:
    return f"CUDA {machine.cuda or machine.major}"
