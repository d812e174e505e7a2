# SPDX-License-Identifier: BSD-3-Clause
"""Which libcuda runs: the host driver's, or the newer one that many images carry. Starts and verdicts both ask this.

The carried one works on data-center cards only, only on the driver branches that it lists, and must not hide a newer
one of the host (CUDA errors 803 and 804).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# What choose_libcuda answers: the image's library is taken, or why it is not.
IMAGE = "image"
HOST_NOT_KNOWN, HOST_NEWER = "host-not-known", "host-newer"
NOT_DATA_CENTER, SAME_BRANCH, NOT_LISTED, KIND_NOT_KNOWN = "not-data-center", "same-branch", "not-listed", "kind"
GPU_TOO_OLD = "gpu-too-old"  # drivers as new as the image's library do not drive the GPU any more

# The driver branch that brought each CUDA minor, newest first; the table has the whole numbers, a start needs no more.
CUDA_BRANCHES = (
    *((610, 13, 3), (595, 13, 2), (590, 13, 1), (580, 13, 0)),
    *((575, 12, 9), (570, 12, 8), (560, 12, 6), (555, 12, 5), (550, 12, 4), (545, 12, 3), (535, 12, 2), (530, 12, 1)),
    *((525, 12, 0), (520, 11, 8), (515, 11, 7), (510, 11, 6), (495, 11, 5), (470, 11, 4), (465, 11, 3), (460, 11, 2)),
    *((455, 11, 1), (450, 11, 0), (440, 10, 2), (418, 10, 1), (410, 10, 0), (396, 9, 2), (390, 9, 1), (384, 9, 0)),
)

_NOT_DATA_CENTER = ("GEFORCE", "TITAN", "QUADRO", "NVS", "CMP", "ORIN", "XAVIER", "THOR", "TEGRA")
_SERVER_LETTERS = ("A", "B", "H", "K", "L", "M", "P", "V")


def choose_libcuda(
    host: tuple[int, ...],
    image: tuple[int, ...],
    branches: Collection[int] | None,
    *,
    takes_forward_compat: bool | None,
    is_behind: bool,
    last_branch: int | None = None,
) -> str:
    """The answer for two driver versions; `branches` are those that the image's library lists, None: it does not say.

    `is_behind`: the host's driver offers an older CUDA major than the image needs. Only then is a card tried of which
    nothing is known. `last_branch` is the last that drives the GPU: libraries of later ones do not know it.
    """
    if not host:
        return HOST_NOT_KNOWN
    if host >= image:
        return HOST_NEWER
    if takes_forward_compat is False:
        return NOT_DATA_CENTER
    if last_branch is not None and image[0] > last_branch:
        return GPU_TOO_OLD
    if branches is None:
        if host[0] >= image[0]:
            return SAME_BRANCH
    elif host[0] not in branches:
        return NOT_LISTED
    return KIND_NOT_KNOWN if takes_forward_compat is None and not is_behind else IMAGE


def cuda_major(branch: int, told: str = "") -> int:
    """The newest CUDA major that a driver branch runs; 0 when it is older than all known."""
    major = told.partition(".")[0]
    if major.isascii() and major.isdigit():
        return int(major)
    return next((cuda for first, cuda, _ in CUDA_BRANCHES if branch >= first), 0)


def find_branch(major: int, minor: int) -> int | None:
    """The driver branch that brought a CUDA minor; None: unknown."""
    return next((branch for branch, *version in CUDA_BRANCHES if version == [major, minor]), None)


def is_data_center(model: str) -> bool:
    """Whether a card is one of those that the compat libraries support, by the name that the driver gives it."""
    words = model.upper().replace("NVIDIA", " ").replace("-", " ").split()
    if not words or any(word in _NOT_DATA_CENTER for word in words):
        return False
    if "TESLA" in words or "GRID" in words:
        return True
    if "RTX" in words:
        return "SERVER" in words  # of the RTX cards only the server editions
    digits = words[0].lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    letters = words[0][: len(words[0]) - len(digits)]
    count = len(digits) - len(digits.lstrip("0123456789"))
    if letters in ("GB", "GH"):
        return count >= 3  # GB200 and GH200; GB10 is a workstation
    if letters == "T":
        return count == 1  # T4; T400 to T1200 are workstation cards
    return letters in _SERVER_LETTERS and count > 0
