# SPDX-License-Identifier: BSD-3-Clause
"""Whether ranks of an image can be started from this host, and how: the verdicts for `mpi check` and `launch`."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen
from kedge.cluster.mpi import MpiHost, MpiImage, MpiVerdict
from kedge.compat.mpi.modes import choose_mode, judge_modes


@frozen
class MpiCheck(JsonValue):
    """An image, a host, the verdicts on all ways, and the one that kedge takes."""

    image: MpiImage
    host: MpiHost
    verdicts: tuple[MpiVerdict, ...] = ()
    chosen: str = ""  # the mode; empty where none is usable
    nodes: int | None = None

    def find(self, mode: str) -> MpiVerdict:
        """The verdict on one way."""
        return next(verdict for verdict in self.verdicts if verdict.mode == mode)


def check_mpi(image: MpiImage, host: MpiHost, *, nodes: int | None = None) -> MpiCheck:
    """The verdicts, and which way to take."""
    verdicts = judge_modes(image, host, nodes=nodes)
    chosen = choose_mode(verdicts)
    return MpiCheck(image, host, verdicts, chosen.mode if chosen else "", nodes)
