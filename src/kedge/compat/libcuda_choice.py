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

CUDA_MAJORS = ((580, 13), (525, 12), (450, 11), (410, 10), (384, 9))  # first driver branch that runs a CUDA major

_NOT_DATA_CENTER = ("GEFORCE", "TITAN", "QUADRO", "NVS", "CMP", "ORIN", "XAVIER", "THOR", "TEGRA")
_SERVER_LETTERS = ("A", "B", "H", "K", "L", "M", "P", "V")


def choose_libcuda(
    host: tuple[int, ...],
    image: tuple[int, ...],
    branches: Collection[int] | None,
    *,
    takes_forward_compat: bool | None,
    is_behind: bool,
) -> str:
    """The answer for two driver versions; `branches` are those that the image's library lists, None: it does not say.

    `is_behind`: the host's driver offers an older CUDA major than the image needs. Only then is a card tried of which
    nothing is known.
    """
    if not host:
        return HOST_NOT_KNOWN
    if host >= image:
        return HOST_NEWER
    if takes_forward_compat is False:
        return NOT_DATA_CENTER
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
    return next((cuda for first, cuda in CUDA_MAJORS if branch >= first), 0)


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
