# SPDX-License-Identifier: BSD-3-Clause
"""Decides which libcuda runs: the host driver's, or the newer one that many images carry (`cuda-compat`).

The carried one works on data-center cards only, only on the driver branches that it lists, and must not hide a newer
one of the host (CUDA errors 803 and 804). The library lists its branches in an ELF note.
"""

from __future__ import annotations

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
from kedge.compat.versions import order
from kedge.runtime.devices.nvidia.driver import is_version
from kedge.runtime.devices.nvidia.libraries import split_name
from kedge.runtime.environment.library_path import find_library_folders
from kedge.runtime.facts import LIBRARIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.posix.views import View
    from kedge.runtime.devices.nvidia.driver import Card

_PLACES = ("/usr/local/cuda/compat", "/usr/local/cuda/compat/lib.real", "/usr/local/cuda/compat/lib")
_TOOLKITS = "/usr/local"
_SECTION, _OWNER = ".note.cuda.fwd_compatibility", "NVIDIA Corporation"


class _Carried:
    """The driver libraries inside an image."""

    __slots__ = ("branches", "cuda", "folder", "version")

    def __init__(self, folder: str, version: str) -> None:
        self.folder = folder
        self.version = version
        self.branches: list[int] | None = None  # host branches it runs on; None: it does not say
        self.cuda = ""


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


def find_carried(view: View) -> _Carried | None:
    """The compat libraries of an image, of the toolkit that /usr/local/cuda means first."""
    toolkits = [name for name in view.names(_TOOLKITS) if name.startswith("cuda-")]
    places = [*_PLACES, *(f"{_TOOLKITS}/{name}/compat" for name in reversed(toolkits))]
    for folder in places:
        for name in view.names(folder):
            stem, suffix = split_name(name)
            if stem == "libcuda" and is_version(suffix) and view.kind(f"{folder}/{name}") == "f":
                return _Carried(folder, suffix)
    return None


def compare_drivers(view: View, carried: _Carried, version: str, cards: list[Card]) -> Decision:
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


def _describe_obstacle(choice: str, libraries: str, carried: _Carried, others: list[str]) -> str:
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


def read_branches(view: View, carried: _Carried) -> None:
    """Fill in what the library says about itself, if it says anything that can be read."""
    import json  # late: only where the image's driver is newer than the host's

    from kedge.posix.elf import ElfDamage, ElfFile

    path = f"{carried.folder}/libcuda.so.{carried.version}"
    try:
        text = ElfFile(lambda size, offset: view.read(path, size, offset) or b"").read_note(_SECTION, _OWNER)
        content = json.loads(text) if text else None
    except (ElfDamage, ValueError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    facts = {key.lower(): value for key, value in content.items()}
    branches, cuda = facts.get("driver"), facts.get("cuda version")
    if isinstance(branches, list) and branches and all(type(branch) is int for branch in branches):
        carried.branches = branches[:64]
    carried.cuda = cuda[:16] if isinstance(cuda, str) else ""
