# SPDX-License-Identifier: BSD-3-Clause
"""A verb's process ends without freeing its memory, and still does all else that an interpreter does at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.errors import NoSpace
from tests.wording import assert_says

START = """
import sys
sys.argv = ["kedge", *WORDS]
from kedge.cli.entry import main
MORE
sys.exit(main())
"""
THREAD = """
import threading, time
def work():
    time.sleep(0.3)
    print("the thread ended", flush=True)
threading.Thread(target=work).start()
"""
AT_EXIT = "import atexit; atexit.register(lambda: print('at exit'))"
DESTRUCTOR = """
class Kept:
    def __del__(self):
        print("freed")
sys.kept = Kept()
"""


def run(folder: Path, words: list[str], more: str = "", **options: int) -> subprocess.CompletedProcess[str]:
    code = START.replace("WORDS", repr(words)).replace("MORE", more)
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=options.get("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )


def test_memory_is_left_to_the_kernel(tmp_path: Path) -> None:
    done = run(tmp_path, ["config", "path"], DESTRUCTOR)
    assert "freed" not in done.stdout, "the interpreter freed everything: a submission costs 14 ms more"


@pytest.mark.parametrize(("more", "said"), [(AT_EXIT, "at exit"), (THREAD, "the thread ended")])
def test_what_is_to_be_done_at_the_end_is_done(tmp_path: Path, more: str, said: str) -> None:
    done = run(tmp_path, ["--help"], more)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: kedge")
    assert done.stdout.endswith(f"{said}\n")


def test_the_status_is_the_verbs(tmp_path: Path) -> None:
    assert run(tmp_path, ["bogus"]).returncode == 2


def test_a_full_disk_is_no_success(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(tmp_path, ["--help"], stdout=full.fileno())
    assert done.returncode == NoSpace.exit_code
    assert_says(done.stderr, "launch/cannot-write-standard-output-file")
