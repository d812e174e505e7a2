# SPDX-License-Identifier: BSD-3-Clause
import sys
from pathlib import Path

from kedge.cli.guard import run_guarded
from kedge.cluster.host_memory import mark_attempt
from kedge.errors import KedgeError


def eat():
    with mark_attempt(Path(sys.argv[1]), "pulling debian", "here"):
        kept = [bytearray(1 << 20) for _ in range(500)]
    return len(kept) % 7


try:
    status = run_guarded("pulling debian", eat) if sys.argv[2] == "guarded" else eat()
    print("status", status)
except KedgeError as problem:
    print(problem.message, "|", problem.hint)
