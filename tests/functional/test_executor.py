# SPDX-License-Identifier: BSD-3-Clause
"""Python functions as jobs of this machine's queue: results, exceptions, deaths, and futures that are given up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

BEGINNING = """
import os, sys, time
import kedge

def add(x, y=0): return x + y
def fail(x):
    if x == 1: raise ValueError("it is one")
    time.sleep(0 if x == 0 else 60)
    return x
def die(): os.kill(os.getpid(), 9)

if __name__ == "__main__":
    with kedge.Executor(site="local", python=sys.executable) as executor:
"""


def run(folder: Path, *lines: str) -> str:
    program = folder / "program.py"
    program.write_text(BEGINNING + "".join(f"        {line}\n" for line in lines))
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    words = [sys.executable, str(program)]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_executor_brings_results_in_order(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        "future = executor.submit(add, 1, y=2)",
        "print(list(executor.map(add, (n for n in range(5)), range(5), chunksize=2)), future.result(60))",
    )
    assert said == "[0, 2, 4, 6, 8] 3\n"
    assert not list((tmp_path / ".local/state/kedge/jobs/calls").iterdir())


def test_executor_tells_of_a_task_that_died(tmp_path: Path) -> None:
    said = run(tmp_path, "print(type(executor.submit(die).exception(60)).__name__)")
    assert said == "JobFailed\n"


def test_executor_ends_the_rest_after_an_exception(tmp_path: Path) -> None:
    begin = time.monotonic()
    said = run(tmp_path, "try: list(executor.map(fail, range(3)))", "except ValueError as problem: print(problem)")
    assert said == "it is one\n"
    assert time.monotonic() - begin < 50, "the others were not ended"
