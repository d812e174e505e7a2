# SPDX-License-Identifier: BSD-3-Clause
"""Starts a command many times and prints the wall times as JSON; standard library only, so that any Python runs it.

python3 loop.py RUNS AT_ONCE COMMAND [ARGUMENT ...]     AT_ONCE > 1: that many are started together, timed as one
"""

from __future__ import annotations

import json
import os
import sys
import time


def start_all(count: int, argv: list[str]) -> float:
    """Seconds from the first start to the end of the last; a command that fails ends the benchmark."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    started = time.perf_counter()
    children = [os.posix_spawnp(argv[0], argv, os.environ, file_actions=quiet) for _ in range(count)]
    for child in children:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            sys.exit(f"{' '.join(argv)} ended with {status}")
    return time.perf_counter() - started


def main() -> None:
    runs, count, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for _ in range(min(3, runs)):
        start_all(count, argv)
    json.dump([start_all(count, argv) for _ in range(runs)], sys.stdout)


main()
