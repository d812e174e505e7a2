# SPDX-License-Identifier: BSD-3-Clause
"""Prints as JSON the allocation and the rank that a process in a job finds; the numbers given are the layout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from kedge.cluster.ranks import find_launcher, find_rank
from kedge.cluster.schedulers.current_job import find_allocation
from kedge.cluster.this_host import read_this_host


def main() -> None:
    """One line."""
    found = find_allocation(os.environ, lambda path: Path(path).read_text(), read_this_host(os.environ))
    rank = find_rank(os.environ, tuple(map(int, sys.argv[1:])))
    shown = {
        "launcher": find_launcher(os.environ),
        "rank": rank.as_dict() if rank else None,
        "host": os.uname().nodename,
    }
    os.write(1, (json.dumps(found.as_dict() | shown) + "\n").encode())  # at once: other ranks write too


if __name__ == "__main__":
    main()
