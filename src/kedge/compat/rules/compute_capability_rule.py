# SPDX-License-Identifier: BSD-3-Clause
"""GPU × kernels: whether an image has code for a GPU, by its list of architectures or its CUDA. A start imports this.

Kernels run on GPUs of the same major and the same or a newer minor; PTX is compiled for newer ones by the driver.
"""

from __future__ import annotations

from kedge.base.versions import order

NATIVE, PTX, NO, UNKNOWN = "native", "ptx", "no", "unknown"  # as the outcomes of a verdict

# Reasons
LISTED = "listed"
STATED = "stated"  # NVIDIA's notes say from which GPU on; no list of kernels
TOOLKIT = "toolkit"  # the image is a toolkit, and that makes code for the GPU
FROM_PTX = "from-ptx"
PTX_OPEN = "ptx-open"  # which libcuda compiles it is unknown
PTX_REFUSED = "ptx-refused"  # the driver is older than the toolkit that made the PTX
OLDER = "older-gpu"  # than all in the list
NEWER = "newer-gpu"  # than all in the list, and there is no PTX
BETWEEN = "between"
BELOW_STATED = "below-stated"
CUDA_TOO_NEW = "cuda-too-new"  # the toolkit makes no code for the GPU any more
CUDA_TOO_OLD = "cuda-too-old"  # the toolkit does not know the GPU yet
NO_LIST = "no-list"
NO_CAPABILITY = "no-capability"  # of the GPU
OTHER_FAMILY = "other-family"  # a Jetson: kernels of other GPUs do not run there


class _KernelList:
    """What an image's list of architectures says."""

    __slots__ = ("exact", "kernels", "ptx", "stated")

    def __init__(self) -> None:
        self.kernels: list[tuple[int, int]] = []
        self.exact: list[tuple[int, int]] = []  # `9.0a`: for that GPU alone
        self.ptx: list[tuple[int, int]] = []
        self.stated: tuple[int, int] | None = None  # `6.0+ (stated)`

    def __bool__(self) -> bool:
        return bool(self.kernels or self.exact or self.ptx)

    def show(self) -> str:
        """Return the capabilities as people read them: `7.5 8.0 9.0a 12.0+PTX`."""
        words = {capability: f"{capability[0]}.{capability[1]}" for capability in self.kernels}
        words |= {
            capability: f"{capability[0]}.{capability[1]}a" for capability in self.exact if capability not in words
        }
        for capability in self.ptx:
            words[capability] = (
                f"{words[capability]}+PTX" if capability in words else f"{capability[0]}.{capability[1]} as PTX"
            )
        return " ".join(words[capability] for capability in sorted(words))


class KernelAnswer:
    """Whether there is code for a GPU, and why; `used` is the entry that serves it."""

    __slots__ = ("kernels", "mode", "reason", "used")

    def __init__(self, mode: str, reason: str, kernels: _KernelList, used: tuple[int, int] | None = None) -> None:
        self.mode = mode
        self.reason = reason
        self.kernels = kernels
        self.used = used


_MOST = 1024  # lists to remember; the tables have fewer
_known: dict[tuple[str, str], _KernelList] = {}


def read_kernels(text: str, architecture: str = "") -> _KernelList:
    """A list in any form that is met: `7.5 8.0+PTX`, `7.5;8.0`, `sm_90 compute_90`, `amd64: … ; arm64: …`, `6.0+`.

    Nobody changes it: a recommendation reads the same few lists thousands of times, and gets the one that was read.
    """
    wanted = f"{architecture or 'amd64'}:"
    kernels = _known.get((text, wanted))
    if kernels is None:
        if len(_known) >= _MOST:
            _known.clear()
        kernels = _known[text, wanted] = _read_list(text, wanted)
    return kernels


def _read_list(text: str, wanted: str) -> _KernelList:
    kernels = _KernelList()
    is_meant = True
    for word in _strip_remarks(text).replace(";", " ; ").replace(",", " ").split():
        if word.endswith(":"):
            is_meant = word == wanted
        elif word == ";":
            continue
        elif is_meant:
            _read_word(word.lower(), kernels)
    return kernels


def judge_kernels(
    text: str,
    capability: str,
    *,
    architecture: str = "",
    cuda: str = "",
    cuda_range: tuple[str, str] = ("", ""),
    accepts_ptx: bool | None = True,
    is_toolkit: bool = False,
    is_jetson: bool = False,
) -> KernelAnswer:
    """Whether an image with the list `text` has code for a GPU of `capability`.

    `cuda_range`: first and last toolkit that make code for the GPU, empty where none is known. `accepts_ptx`: the
    driver takes PTX of the image's toolkit, which is not so under minor-version compatibility; None: unknown.
    `is_toolkit`: the image holds CUDA and no programs of its own.
    """
    kernels = read_kernels(text, architecture)
    device = order(capability)[:2]
    if len(device) < 2:
        return KernelAnswer(UNKNOWN, NO_CAPABILITY, kernels)
    if kernels:
        return _search_list(kernels, (device[0], device[1]), accepts_ptx=accepts_ptx, is_jetson=is_jetson)
    age = _compare_toolkit(cuda, cuda_range)
    if age == CUDA_TOO_NEW:
        return KernelAnswer(NO, age, kernels)
    if kernels.stated is not None and device < kernels.stated:
        return KernelAnswer(UNKNOWN, BELOW_STATED, kernels)
    if age == CUDA_TOO_OLD:
        return KernelAnswer(UNKNOWN, age, kernels)
    if is_toolkit and age == TOOLKIT:
        return KernelAnswer(NATIVE, TOOLKIT, kernels)
    if kernels.stated is not None and age == TOOLKIT:
        return KernelAnswer(NATIVE, STATED, kernels)
    return KernelAnswer(UNKNOWN, NO_LIST, kernels)


def _search_list(
    kernels: _KernelList, device: tuple[int, int], *, accepts_ptx: bool | None, is_jetson: bool
) -> KernelAnswer:
    if device in kernels.exact or device in kernels.kernels:
        return KernelAnswer(NATIVE, LISTED, kernels, device)
    near = [capability for capability in kernels.kernels if capability[0] == device[0] and capability[1] <= device[1]]
    if near:
        # on Jetson, kernels for other GPUs do not run, though their numbers are near
        return KernelAnswer(UNKNOWN if is_jetson else NATIVE, OTHER_FAMILY if is_jetson else LISTED, kernels, max(near))
    older = [capability for capability in kernels.ptx if capability <= device]
    if older:
        mode, reason = {True: (PTX, FROM_PTX), False: (NO, PTX_REFUSED), None: (UNKNOWN, PTX_OPEN)}[accepts_ptx]
        return KernelAnswer(mode, reason, kernels, max(older))
    known = [*kernels.kernels, *kernels.exact, *kernels.ptx]
    reason = OLDER if device < min(known) else NEWER if device > max(known) else BETWEEN
    return KernelAnswer(NO, reason, kernels)


def _compare_toolkit(cuda: str, cuda_range: tuple[str, str]) -> str:
    """Whether a toolkit makes code for a GPU; empty: unknown."""
    ours, first, last = order(cuda)[:2], order(cuda_range[0]), order(cuda_range[1])
    if not ours or not first:
        return ""
    if last and ours > last[: len(ours)]:
        return CUDA_TOO_NEW
    if ours < first[: len(ours)]:
        return CUDA_TOO_OLD
    return TOOLKIT if len(ours) > 1 else ""


def _strip_remarks(text: str) -> str:
    """Return the text without what stands in brackets, but for `(stated)`, which belongs to the number before it."""
    kept, depth = [], 0
    for character in text.replace(" (stated)", "~"):
        depth += (character == "(") - (character == ")")
        if depth <= 0 and character != ")":
            kept.append(character)
    return "".join(kept)


def _read_word(word: str, kernels: _KernelList) -> None:
    if word.endswith(("~", "+")):
        fields = order(word.rstrip("~+"))
        kernels.stated = (fields[0], fields[1]) if len(fields) > 1 else kernels.stated
        return
    plain = word.removesuffix("+ptx")
    is_virtual = plain.startswith("compute_")
    number = plain.removeprefix("compute_").removeprefix("sm_").removesuffix("-real")
    is_exact = number.endswith("a")  # `f` is for a family: as kernels without a letter are
    number = number.rstrip("af")
    if number.isascii() and number.isdigit() and 2 <= len(number) <= 3:
        number = f"{number[:-1]}.{number[-1]}"
    fields = order(number)
    if len(fields) != 2 or not number.replace(".", "").isdigit():
        return
    capability = (fields[0], fields[1])
    if word.endswith("+ptx") or is_virtual:
        kernels.ptx.append(capability)
    if not is_virtual:
        (kernels.exact if is_exact else kernels.kernels).append(capability)
