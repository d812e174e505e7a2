# SPDX-License-Identifier: BSD-3-Clause
"""What an image may cost before it is refused as a bomb: expanded bytes, entries, bytes of names and attributes.

Defaults let through a file of 10 GB of zeros (10 MB as gzip) and 300,000 files, and stop what would run for hours:
more than 16 GiB expanded at more than 200 times the compressed size, 5 million entries, 512 MiB of metadata.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kedge.base.progress import Progress, Silent
from kedge.errors import HostileImage


@dataclass(frozen=True, slots=True)
class FlattenOptions:
    """How layers are read and what they may cost."""

    verify_diff_ids: bool = True  # of layers that have one; a blob pulled by digest is known to be whole already
    threaded: bool = True  # inflate on a thread of its own
    threads: int = 1  # that may inflate at the same time
    ahead: int = 0  # bytes of the next layers that may be inflated while a layer is read
    free_expansion: int = 16 << 30  # bytes; below this any ratio is fine
    maximum_ratio: int = 200  # expanded : compressed, once above free_expansion
    maximum_entries: int = 5_000_000
    maximum_metadata: int = 512 << 20  # bytes of names, link targets and extended attributes
    maximum_depth: int = 2048  # directories in one another: as many as a path of 4096 bytes can name
    progress: Progress = field(default_factory=Silent)


class Ledger:
    """Running totals over all layers of one image; each `charge_…` refuses what goes beyond the limits.

    `charge_compressed` and `charge_inflated` are called by the threads that inflate, the others by the one that reads
    the tar.
    """

    __slots__ = ("_counting", "compressed", "entries", "holes", "inflated", "metadata", "options")

    def __init__(self, options: FlattenOptions) -> None:
        self.options = options
        self._counting = threading.Lock()
        self.compressed = 0
        self.inflated = 0
        self.holes = 0
        self.entries = 0
        self.metadata = 0

    def charge_compressed(self, amount: int) -> None:
        """Count bytes as they came from the registry."""
        with self._counting:
            self.compressed += amount

    def charge_inflated(self, amount: int, where: str) -> None:
        """Count bytes that came out of the decompressor."""
        with self._counting:
            self.inflated += amount
        if self.inflated > self.options.free_expansion:
            self._judge(where)

    def charge_holes(self, amount: int, where: str) -> None:
        """Count zeros that a sparse file stands for, before they are produced."""
        self.holes += amount
        self._judge(where)

    def charge_member(self, amount: int, where: str, entries: int = 1) -> None:
        """Count an entry (or several directories that its name implies), and the bytes of its names and attributes."""
        self.entries += entries
        self.metadata += amount
        if self.entries > self.options.maximum_entries:
            raise _refuse(where, f"the image has more than {self.options.maximum_entries} entries")
        if self.metadata > self.options.maximum_metadata:
            raise _refuse(where, f"names and attributes take more than {self.options.maximum_metadata >> 20} MiB")

    def _judge(self, where: str) -> None:
        expanded = self.inflated + self.holes
        limit = max(self.options.free_expansion, self.compressed * self.options.maximum_ratio)
        if expanded > limit:
            raise _refuse(
                where, f"{self.compressed} compressed bytes expand to {expanded} or more; the limit for them is {limit}"
            )


def _refuse(where: str, why: str) -> HostileImage:
    return HostileImage(
        f"{where}: {why}",
        context={"layer": where},
        hint="this looks like a decompression bomb; do not use this image",
    )
