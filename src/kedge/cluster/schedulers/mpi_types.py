# SPDX-License-Identifier: BSD-3-Clause
"""Which kinds of PMI srun serves to ranks: the question, and how its answer is read."""

from __future__ import annotations

import re

LIST_COMMAND = ("srun", "--mpi=list")


def parse_mpi_types(text: str) -> list[str]:
    """The names that `srun --mpi=list` prints: one per line, in old versions after `srun:`, several for PMIx."""
    found = []
    for line in text.splitlines():
        words = line.strip().removeprefix("srun:").strip()
        if "available:" in words:
            found += words.partition("available:")[2].replace(",", " ").split()
        elif re.fullmatch(r"[a-z0-9_]{1,32}", words):
            found.append(words)
    return list(dict.fromkeys(found))
