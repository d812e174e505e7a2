# SPDX-License-Identifier: BSD-3-Clause
"""The GPUs of this machine by their device files, and how many of them a program is let to see. Asks no driver."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_WITHOUT_NUMBER = ("dxg", "nvhost-gpu")  # the one GPU of WSL, and of a Jetson
_NONE = ("", "-1", "nodevfiles", "void", "none")  # words of Slurm, and of NVIDIA_VISIBLE_DEVICES


def list_gpus(devices: str = "/dev") -> tuple[str, ...]:
    """Return the numbers of GPUs, as CUDA_VISIBLE_DEVICES takes them."""
    try:
        names = os.listdir(devices)  # noqa: PTH208 - the names are all
    except OSError:
        return ()
    numbered = sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia[0-9]{1,4}", name))
    if not numbered and any(name in names for name in _WITHOUT_NUMBER):
        return ("0",)
    return tuple(map(str, numbered))


def count_visible(environ: Mapping[str, str], devices: str = "/dev") -> int:
    """How many a program sees: those that CUDA_VISIBLE_DEVICES names, or else all."""
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return len(list_gpus(devices))
    count = 0
    for word in chosen.split(",")[:1024]:  # CUDA stops at the first that is none
        if word.strip().lower() in _NONE:
            break
        count += 1
    return count
