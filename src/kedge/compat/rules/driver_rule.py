# SPDX-License-Identifier: BSD-3-Clause
"""Driver × CUDA: in which way the driver of a host runs the CUDA of an image. Plain values in, reasons out.

`driver_text` makes sentences of the answer. A start imports this.
"""

from __future__ import annotations

from kedge.base.versions import order
from kedge.compat.rules.libcuda_choice import IMAGE, choose_libcuda, cuda_major, find_branch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# The ways; the same words as the outcomes of a verdict.
NATIVE, MINOR, FORWARD, NO, UNKNOWN = "native", "minor-version", "forward-compatible", "no", "unknown"

# Reasons
NEW_ENOUGH = "new-enough"  # the driver is what the CUDA release asks for
SAME_BRANCH = "same-branch"  # older than that, but of the branch that brought this CUDA
_OFFERS_CUDA = "offers-cuda"  # what the release asks for is unknown, but the driver offers this CUDA or a newer one
IMAGE_LIBCUDA = "image-libcuda"
SAME_MAJOR = "same-major"
NO_CUDA = "no-cuda"  # nothing is known about CUDA in the image
NO_DRIVER = "no-driver"  # the driver of the host is unknown
TOO_OLD = "too-old"
NO_LONGER_DRIVEN = "no-longer-driven"  # the driver is too new for the GPU
NOT_YET_DRIVEN = "not-yet-driven"  # the driver is older than the GPU
SHORT_DRIVER = "short-driver"  # the driver was named in short, and the rest of its number would decide
COMPAT_NOT_KNOWN = "compat-not-known"  # whether the image carries a libcuda
BRANCHES_NOT_KNOWN = "branches-not-known"  # on which drivers the libcuda of the image runs
KIND_OF_GPU_NOT_KNOWN = "kind-of-gpu-not-known"
_NO_COMPAT = "no-compat"  # an obstacle: the image carries no libcuda, or of no version that is known
NEEDS_NOT_KNOWN = "needs-not-known"  # which driver this CUDA needs

# Oldest driver of minor-version compatibility, by CUDA major; before CUDA 11 there is none.
_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


class DriverNeed:
    """What an image asks of a driver; unknown values are empty or None."""

    __slots__ = ("branches", "built_for", "carries_compat", "cuda", "min_driver", "minor_floor")

    def __init__(
        self,
        cuda: str,
        *,
        built_for: str = "",
        carries_compat: bool | None = None,
        branches: Collection[int] | None = None,
        min_driver: str = "",
        minor_floor: str = "",
    ) -> None:
        self.cuda = cuda  # 12.3.2.001
        self.built_for = built_for  # 545.23.08: the driver it was built for; the version of the libcuda it carries
        self.carries_compat = carries_compat
        self.branches = tuple(branches) if branches else None  # of hosts, on which the carried libcuda runs
        self.min_driver = min_driver or built_for or self._find_branch()
        self.minor_floor = minor_floor or _FLOORS.get(self.major, "")

    def _find_branch(self) -> str:
        fields = order(self.cuda)[:2]
        branch = find_branch(*fields) if len(fields) == 2 else None
        return str(branch) if branch else ""

    @property
    def major(self) -> int:
        """Return the major version of the CUDA; 0: unknown."""
        fields, driver = order(self.cuda), order(self.built_for)
        return fields[0] if fields else cuda_major(driver[0]) if driver else 0


class HostDriver:
    """The driver that an image meets; unknown values are empty or None."""

    __slots__ = ("capability", "cuda", "driver", "first_branch", "last_branch", "takes_forward_compat")

    def __init__(
        self,
        driver: str,
        *,
        takes_forward_compat: bool | None = None,
        cuda: str = "",
        first_branch: int | None = None,
        last_branch: int | None = None,
        capability: str = "",
    ) -> None:
        self.driver = driver  # 535.104.05; or in short, as somebody names it: 535
        self.takes_forward_compat = takes_forward_compat  # whether its GPUs run the libcuda of an image
        self.cuda = cuda  # the CUDA that the driver offers; empty: by its branch
        self.first_branch = first_branch  # older drivers know no GPU of its capability; None: unknown
        self.capability = capability
        self.last_branch = last_branch  # newer drivers do not drive its GPU any more; None: all do, or it is unknown

    @property
    def major(self) -> int:
        """The newest CUDA major that it runs; 0: unknown."""
        fields = order(self.driver)
        return cuda_major(fields[0], self.cuda) if fields else 0


class DriverAnswer:
    """In which way it runs, and why."""

    __slots__ = ("accepts_ptx", "mode", "obstacle", "reason", "uses_image")

    def __init__(
        self,
        mode: str,
        reason: str,
        *,
        uses_image: bool | None = False,
        obstacle: str = "",
        accepts_ptx: bool | None = True,
    ) -> None:
        self.mode = mode
        self.reason = reason
        self.uses_image = uses_image  # kedge takes the libcuda of the image; None: its own list decides at the start
        self.accepts_ptx = accepts_ptx  # the libcuda that runs compiles PTX of the image's toolkit; None: unknown
        self.obstacle = obstacle  # why that is of no use, in words of libcuda_choice, or NO_COMPAT


def compare_drivers(driver: str, needed: str) -> bool | None:
    """Whether a driver is the needed one or newer; None where it is named too short to say (535 for 535.104.05)."""
    ours, theirs = order(driver), order(needed)
    if not ours or not theirs:
        return None
    if len(ours) < len(theirs) and ours == theirs[: len(ours)]:
        return None if any(theirs[len(ours) :]) else True
    return ours >= theirs


def judge_driver(need: DriverNeed, machine: HostDriver) -> DriverAnswer:
    """In which way `machine` runs an image that has `need`."""
    fields = order(machine.driver)
    if fields and machine.last_branch is not None and fields[0] > machine.last_branch:
        return DriverAnswer(NO, NO_LONGER_DRIVEN)
    if fields and machine.first_branch is not None and fields[0] < machine.first_branch:
        return DriverAnswer(NO, NOT_YET_DRIVEN)
    if not need.major or not fields:
        return DriverAnswer(UNKNOWN, NO_DRIVER if need.major else NO_CUDA)
    return _judge_versions(need, machine)


def _judge_versions(need: DriverNeed, machine: HostDriver) -> DriverAnswer:
    choice = _choose_libcuda(need, machine)
    native = _find_native(need, machine)
    if native:
        return DriverAnswer(NATIVE, native, uses_image=choice == IMAGE and need.carries_compat is True, obstacle=choice)
    is_carried = choice == IMAGE and need.carries_compat is True
    if is_carried and need.branches is not None and machine.takes_forward_compat:
        return DriverAnswer(FORWARD, IMAGE_LIBCUDA, uses_image=True)
    floor = _is_above_floor(need, machine)
    if floor:
        uses_image = None if choice == IMAGE else False
        accepts = False if need.min_driver and uses_image is False else None
        return DriverAnswer(MINOR, SAME_MAJOR, uses_image=uses_image, obstacle=choice, accepts_ptx=accepts)
    return _judge_old_driver(need, machine, choice, floor)


def _judge_old_driver(need: DriverNeed, machine: HostDriver, choice: str, floor: bool | None) -> DriverAnswer:
    """Judge a driver that is too old as far as can be seen: definitely so, or depending on something unknown."""
    if choice == IMAGE:
        if need.carries_compat is None:
            return DriverAnswer(UNKNOWN, COMPAT_NOT_KNOWN, uses_image=None)
        reason = BRANCHES_NOT_KNOWN if machine.takes_forward_compat else KIND_OF_GPU_NOT_KNOWN
        return DriverAnswer(UNKNOWN, reason, uses_image=None)
    if floor is None:
        return DriverAnswer(UNKNOWN, SHORT_DRIVER, obstacle=choice)
    if not need.min_driver and machine.major >= need.major:
        return DriverAnswer(UNKNOWN, NEEDS_NOT_KNOWN, obstacle=choice)
    return DriverAnswer(NO, TOO_OLD, obstacle=choice)


def _choose_libcuda(need: DriverNeed, machine: HostDriver) -> str:
    """Choose between the host's libcuda and the image's, as a start would, were there one."""
    theirs = order(need.built_for or need.min_driver)
    if need.carries_compat is False or not theirs:
        return _NO_COMPAT
    return choose_libcuda(
        order(machine.driver),
        theirs,
        need.branches,
        takes_forward_compat=machine.takes_forward_compat,
        is_behind=0 < machine.major < need.major,
        last_branch=machine.last_branch,
    )


def _find_native(need: DriverNeed, machine: HostDriver) -> str:
    """Why the driver is new enough by itself; empty when it is not."""
    if need.min_driver:
        if compare_drivers(machine.driver, need.min_driver):
            return NEW_ENOUGH
        # a branch brings one CUDA minor, and its later drivers bring no other
        return SAME_BRANCH if order(machine.driver)[:1] == order(need.min_driver)[:1] else ""
    offered = order(machine.cuda)[:2]
    if machine.major > need.major or (len(offered) == 2 and offered >= order(need.cuda)[:2]):
        return _OFFERS_CUDA
    return ""


def _is_above_floor(need: DriverNeed, machine: HostDriver) -> bool | None:
    """Whether minor-version compatibility holds; None: the driver's number is too short to say."""
    if need.major < 11 or machine.major != need.major or not need.minor_floor:
        return False
    return compare_drivers(machine.driver, need.minor_floor)
