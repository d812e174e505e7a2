# SPDX-License-Identifier: BSD-3-Clause
"""What is said of a compressed stream that is damaged, cut short, or followed by something else."""

from __future__ import annotations

from kedge.errors import CorruptImage

_REFETCH = "fetch it again; if it is still damaged, it was damaged when it was pushed"


def damaged(where: str, kind: str, problem: Exception) -> CorruptImage:
    """The codec refuses the data."""
    return CorruptImage(f"{where}: the {kind} data is damaged: {problem}", context={"layer": where}, hint=_REFETCH)


def truncated(where: str, kind: str) -> CorruptImage:
    """The data ends before the stream does."""
    return CorruptImage(f"{where}: the {kind} data ends too early", context={"layer": where}, hint=_REFETCH)


def garbage(where: str, kind: str) -> CorruptImage:
    """What follows the stream is no other one."""
    return CorruptImage(f"{where}: garbage follows the {kind} data", context={"layer": where}, hint=_REFETCH)
