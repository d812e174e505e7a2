# SPDX-License-Identifier: BSD-3-Clause
"""Decides which libcuda runs: the host driver's, or the newer one that many images carry (`cuda-compat`).

The carried one works on data-center cards only, only on the driver branches that it lists, and must not hide a newer
one of the host (CUDA errors 803 and 804).
"""

from __future__ import annotations

from kedge.base.versions import order
from kedge.compat.carried_driver import CarriedDriver, find_carried, read_branches
from kedge.compat.rules.libcuda_choice import (
    GPU_TOO_OLD,
    HOST_NEWER,
    HOST_NOT_KNOWN,
    KIND_NOT_KNOWN,
    NOT_DATA_CENTER,
    NOT_LISTED,
    SAME_BRANCH,
    choose_libcuda,
    cuda_major,
    is_data_center,
)
from kedge.container.environment.library_path import find_library_folders
from kedge.container.facts import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.devices.nvidia.driver import Card
    from kedge.system.views import View


class Decision:
    """Folders that go first in LD_LIBRARY_PATH, the reason, and why GPU programs cannot work with either library."""

    __slots__ = ("note", "obstacle", "prepend", "remedy", "uses_image")

    def __init__(self, note: str = "", *, uses_image: bool = False, obstacle: str = "", remedy: str = "") -> None:
        self.note = note
        self.uses_image = uses_image
        self.obstacle = obstacle
        self.remedy = remedy
        self.prepend: list[str] = []


def decide_libcuda(view: View, version: str, cards: list[Card], library_path: str) -> Decision:
    """The decision for the image of `view` on a host driver of `version`; `library_path` is the image's own."""
    carried = find_carried(view)
    decision = Decision() if carried is None else compare_drivers(view, carried, version, cards)
    if decision.uses_image and carried is not None:
        decision.prepend = [carried.folder]
        return decision
    # the image's own directories come before the host's libraries in LD_LIBRARY_PATH
    folders = [*library_path.split(":"), *find_library_folders(view)]
    foreign = [folder for folder in folders if folder.startswith("/") and _has_libcuda(view, folder)]
    if foreign and version:
        decision.prepend = [LIBRARIES]
        decision.note = decision.note or f"host libcuda {version} is used, not the image's in {foreign[0]}"
    return decision


def _has_libcuda(view: View, folder: str) -> bool:
    """Whether the dynamic loader finds a libcuda in a directory of the image."""
    return folder.rstrip("/") != LIBRARIES and view.kind(folder.rstrip("/") + "/libcuda.so.1") == "f"


def compare_drivers(view: View, carried: CarriedDriver, version: str, cards: list[Card]) -> Decision:
    """Which of the two libcuda it is, by the rule that `kedge explain` tells beforehand."""
    ours, theirs = order(version), order(carried.version)
    if ours and ours < theirs:
        read_branches(view, carried)
    wanted, offered = cuda_major(theirs[0], carried.cuda), cuda_major(ours[0]) if ours else 0
    is_behind = 0 < offered < wanted
    others = [card.model for card in cards if card.model and not is_data_center(card.model)]
    takes = False if others else True if any(card.model for card in cards) else None
    last = _find_last_branch(cards) if ours and ours < theirs and takes else None
    choice = choose_libcuda(
        ours, theirs, carried.branches, takes_forward_compat=takes, is_behind=is_behind, last_branch=last
    )
    host, libraries = f"host libcuda {version} is used", f"the image's compat libraries ({carried.version})"
    if choice == HOST_NOT_KNOWN:
        return Decision("the host's libcuda is used: the driver version is unknown")
    if choice == HOST_NEWER:
        return Decision(f"{host}: it is {'the same as' if ours == theirs else 'newer than'} {libraries}")
    if choice == KIND_NOT_KNOWN:
        return Decision(f"{host}: it also runs CUDA {wanted}, and the GPU model is unknown")
    obstacle = _describe_obstacle(choice, libraries, carried, others)
    if obstacle:
        needs = f"It needs CUDA {wanted}, driver {version} of this node supports CUDA {offered}, and {obstacle}."
        return Decision(
            f"{host}: {obstacle}",
            obstacle=needs if is_behind else "",
            remedy=f"Use an image for CUDA {offered}, or a node with a newer driver.",
        )
    reason = f"it is newer than the host's driver {version}"
    return Decision(f"libcuda {carried.version} of the image is used ({carried.folder}): {reason}", uses_image=True)


def _find_last_branch(cards: list[Card]) -> int | None:
    """The last driver branch that drives all the cards; None: current ones do, or it is not known."""
    from kedge.compat.tables.gpu_index import (
        find_capability,  # late: few images carry a libcuda that is newer than the host's
    )

    known = [find_capability(model) for model in {card.model: None for card in cards if card.model}]
    return min((gpu[3] for gpu in known if gpu is not None and gpu[3] is not None), default=None)


def _describe_obstacle(choice: str, libraries: str, carried: CarriedDriver, others: list[str]) -> str:
    """Why newer libraries of the image cannot run on this host's driver branch and cards; empty when they can."""
    if choice == NOT_DATA_CENTER:
        return f"{libraries} run on data-center GPUs only, not on {others[0]}"
    if choice == GPU_TOO_OLD:
        return f"{libraries} no longer support the GPU of this node"
    if choice == SAME_BRANCH:
        return f"{libraries} are of the same branch"
    if choice == NOT_LISTED:
        return f"{libraries} run on drivers {', '.join(str(branch) for branch in carried.branches or ())} only"
    return ""
