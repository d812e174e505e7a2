# SPDX-License-Identifier: BSD-3-Clause
"""The guarded child is the one that the kernel kills for memory: its parent is there to explain it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from pathlib import Path
from kedge.cli.guard import run_guarded
read = lambda: int(Path("/proc/self/oom_score_adj").read_text())
before = read()
print(before, before + run_guarded("a test", lambda: read() - before), read())
"""


def test_the_child_comes_first_when_memory_is_short() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert [int(word) for word in done.stdout.split()] == [own, min(own + 100, 1000), own]


TURNS = """
import sys
from kedge.cli.guard import run_guarded
before = sys.getswitchinterval()
inside = run_guarded("a test", lambda: round(sys.getswitchinterval() * 1e4))
print(round(before * 1e4), inside, round(sys.getswitchinterval() * 1e4))
"""


def test_the_child_gives_the_interpreter_lock_away_often() -> None:
    done = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["50", "2", "50"]  # tenths of milliseconds
