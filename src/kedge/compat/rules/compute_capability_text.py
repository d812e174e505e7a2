# SPDX-License-Identifier: BSD-3-Clause
"""The sentences that a user reads about a GPU and the kernels of an image. A start may import this."""

from __future__ import annotations

from kedge.base.versions import order
from kedge.compat.rules import compute_capability_rule as rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.compat.rules.compute_capability_rule import KernelAnswer

ERROR_209 = "error 209, 'no kernel image is available for execution on the device'"


class Subject:
    """What the sentences are about."""

    __slots__ = ("capability", "cuda", "cuda_range", "driver", "gpu")

    def __init__(
        self, gpu: str, capability: str, *, cuda: str = "", cuda_range: tuple[str, str] = ("", ""), driver: str = ""
    ) -> None:
        self.gpu = gpu  # empty: unknown
        self.capability = capability
        self.cuda = ".".join(str(field) for field in order(cuda)[:3])
        self.cuda_range = cuda_range  # first and last toolkit that make code for the GPU
        self.driver = driver

    def __str__(self) -> str:
        stated = f"compute capability {self.capability}"
        if not self.capability or stated in self.gpu:
            return self.gpu
        return f"{self.gpu[:-1]}; {stated})" if self.gpu.endswith(")") else f"{self.gpu} ({stated})"


def tell_kernels(answer: KernelAnswer, subject: Subject) -> tuple[str, str]:
    """What the answer means, and the remedy; the second is empty where nothing is needed."""
    if answer.mode == rule.NATIVE:
        return _tell_native(answer, subject), ""
    if answer.mode == rule.PTX:
        return _tell_ptx(answer, subject)
    if answer.mode == rule.NO:
        return _tell_refusal(answer, subject), _find_remedy(answer, subject)
    is_named = subject.gpu or answer.reason != rule.NO_CAPABILITY
    return _tell_unknown(answer, subject), "" if is_named else "Give it with --gpu."


def show_capability(pair: tuple[int, int] | None) -> str:
    """`9.0`."""
    return f"{pair[0]}.{pair[1]}" if pair else ""


def _tell_native(answer: KernelAnswer, subject: Subject) -> str:
    if answer.reason == rule.STATED:
        stated = show_capability(answer.kernels.stated)
        return (
            f"NVIDIA states that the image supports compute capability {stated} and newer, which includes {subject}. "
            f"Its list of kernels is unknown."
        )
    if answer.reason == rule.TOOLKIT:
        return f"CUDA {subject.cuda} compiles code for {subject}; the image has no GPU programs of its own."
    used = show_capability(answer.used)
    if used != subject.capability:
        return f"The image's kernels for {used} run on {subject}."
    return f"The image has kernels for {subject}."


def _tell_ptx(answer: KernelAnswer, subject: Subject) -> tuple[str, str]:
    first, remedy = subject.cuda_range[0], f"Take an image with kernels for {subject.capability}."
    sentence = (
        f"The image has no kernels for {subject}, only for {answer.kernels.show()}. The driver compiles them from the "
        f"PTX for {show_capability(answer.used)} when a program starts, which takes time; code without PTX fails."
    )
    if subject.cuda and first and order(subject.cuda)[:2] < order(first)[:2]:
        sentence += f" CUDA {subject.cuda} does not support this GPU; {first} is the first version that does."
        remedy = f"Take an image with CUDA {first} or newer."
    return sentence, remedy


def _tell_refusal(answer: KernelAnswer, subject: Subject) -> str:
    listed = answer.kernels.show()
    if answer.reason == rule.PTX_REFUSED:
        return (
            f"The image has no kernels for {subject}, only for {listed}, and driver {subject.driver} cannot compile "
            f"its PTX: it is older than the image's CUDA. Programs fail with error 222, 'the provided PTX was compiled "
            f"with an unsupported toolchain'."
        )
    if answer.reason == rule.CUDA_TOO_NEW:
        last = subject.cuda_range[1]
        gone = f"CUDA {subject.cuda} no longer supports {subject}; {last} was the last version that did"
        return f"{gone}. Programs fail with {ERROR_209}."
    reasons = {
        rule.OLDER: f"{subject} is older than all GPUs that the image has kernels for ({listed})",
        rule.NEWER: f"{subject} is newer than all GPUs that the image has kernels for ({listed}), and it has no PTX",
        rule.BETWEEN: f"The image has no kernels for {subject}, only for {listed}",
    }
    return f"{reasons[answer.reason]}. Programs fail with {ERROR_209}."


def _find_remedy(answer: KernelAnswer, subject: Subject) -> str:
    first, last = subject.cuda_range
    if answer.reason == rule.CUDA_TOO_NEW:
        return f"Take an image with CUDA {last} or older, or a newer GPU."
    if answer.reason == rule.PTX_REFUSED:
        return f"Take an image with kernels for {subject.capability}, or a newer driver."
    if answer.reason == rule.NEWER:
        return f"Take an image with CUDA {first} or newer." if first else "Take a newer image."
    lowest = min([*answer.kernels.kernels, *answer.kernels.exact, *answer.kernels.ptx])
    if answer.reason == rule.OLDER:
        return f"Take an older image, or a GPU of compute capability {show_capability(lowest)} or newer."
    return "Take an image that lists this GPU, or another GPU."


def _tell_unknown(answer: KernelAnswer, subject: Subject) -> str:
    if answer.reason == rule.NO_CAPABILITY:
        listed = answer.kernels.show()
        has = f" The image has kernels for {listed}." if listed else ""
        what = f"The compute capability of {subject.gpu}" if subject.gpu else "The GPU"
        return f"{what} is unknown.{has}"
    if answer.reason == rule.BELOW_STATED:
        stated = show_capability(answer.kernels.stated)
        return (
            f"NVIDIA states that the image supports compute capability {stated} and newer, which excludes {subject}. "
            f"Its list of kernels is unknown; expect {ERROR_209}."
        )
    if answer.reason == rule.CUDA_TOO_OLD:
        return (
            f"CUDA {subject.cuda} does not support {subject}; {subject.cuda_range[0]} is the first version that does. "
            f"Only PTX, or kernels for an older GPU of its generation, could run; it is unknown whether the image has "
            f"them."
        )
    if answer.reason == rule.PTX_OPEN:
        return (
            f"The image has no kernels for {subject}, only for {answer.kernels.show()}. Driver {subject.driver} cannot "
            f"compile its PTX. The image's own libcuda could; it is unknown whether it works with this driver."
        )
    if answer.reason == rule.OTHER_FAMILY:
        return (
            f"The image has kernels for {answer.kernels.show()}, but none for {subject}, and kernels for other "
            f"GPUs do not run on Jetson. Tags for Jetson end in -igpu."
        )
    return f"The image's list of kernels is unknown, so kedge cannot judge {subject}."
