# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of a kedge command, each with a signal at another of the points at which Python looks for one.

`signal_rounds.py FOLDER ROUNDS SEED PLACES WORD...`: PLACES are parts of the paths of modules, with commas; `{folder}`
in a word is the directory of the round. Prints a line for each round that did not end as it should, and at the end how
many there were.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import kedge.cli.main
from tests.builders.signal_points import Point, PointList, SignalAt

_PATIENCE = 30.0  # seconds; a command that heard its signal ends within one
_UNHEARD = 10.0  # seconds within which a point is met, if at all
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WRONG = ("Traceback", "this is a bug", "Exception ignored")
_MARK = "SIGNAL_ROUND"


def start_round(folder: Path, words: list[str], watcher: PointList | SignalAt) -> int:
    """Fork a process that is the command; `watcher` is at work in the child that it makes for itself."""
    process = os.fork()
    if process:
        return process
    try:
        os.setsid()
        out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
        for source, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (out, 2)):
            os.dup2(source, stream)
        os.environ |= {_MARK: str(folder), "KEDGE_CACHEDIR": str(folder / "cache")}
        os.chdir(folder)
        run = kedge.cli.main._run_module

        def run_watched(*arguments: object) -> int:
            try:
                with watcher:
                    return run(*arguments)  # type: ignore[arg-type]
            finally:
                if isinstance(watcher, PointList):
                    (folder / "points").write_bytes(pickle.dumps(dict(watcher.met)))

        kedge.cli.main._run_module = run_watched
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        given = [word.replace("{folder}", str(folder)) for word in words]
        kedge.cli.main.end_process(kedge.cli.main.main(given))
    finally:
        os._exit(99)


def wait_for(process: int, seconds: float) -> int | None:
    """The status of a child, as a shell shows it; None where it does not end."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        time.sleep(0.005)
    return None


def list_left(folder: Path, process: int) -> list[int]:
    """The processes of a round that live: those of its session, and programs that have one of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            is_ours = int(session) == process or f"{_MARK}={folder}\0".encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        if is_ours and state not in "ZX":
            found.append(int(path.name))
    return found


def judge(folder: Path, process: int, status: int | None, number: int) -> list[str]:
    """What is wrong with a round."""
    if status is None:
        return ["it does not end"]
    said = (folder / "out").read_text(errors="replace")
    wrong = [word for word in _WRONG if word in said]
    if status not in (128 + number, 0):
        wrong.append(f"status {status}")
    until = time.monotonic() + 5
    while list_left(folder, process) and time.monotonic() < until:
        time.sleep(0.05)
    if list_left(folder, process):
        wrong.append("a process is left")
    if status and [path for path in folder.iterdir() if path.name.startswith(".")]:
        wrong.append("a temporary file is left")
    return [*wrong, said[-1000:]] if wrong else []


def run_round(folder: Path, words: list[str], point: Point, count: int, number: int) -> list[str] | None:
    """What is wrong with it; None where the point was not met."""
    hears, tells = os.pipe()
    process = start_round(folder, words, SignalAt(point, number, count, tells))
    os.close(tells)
    try:
        is_sent = bool(select.select([hears], [], [], _UNHEARD)[0]) and os.read(hears, 1) == b"!"
        status = wait_for(process, _PATIENCE) if is_sent else None
        return judge(folder, process, status, number) if is_sent else None
    finally:
        os.close(hears)
        for left in list_left(folder, process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)


def list_met(folder: Path, words: list[str], places: list[str]) -> Counter[Point]:
    """The points of the command, which is ended where it does not end by itself."""
    process = start_round(folder, words, PointList(places))
    status = wait_for(process, _UNHEARD)
    if status is None:
        os.kill(process, signal.SIGTERM)
        status = wait_for(process, _PATIENCE)
    assert status in (0, 128 + signal.SIGTERM), (folder / "out").read_text()
    return Counter(pickle.loads((folder / "points").read_bytes()))


def main() -> None:
    """Go through them, each once before any twice."""
    base, rounds, seed, places, *words = sys.argv[1:]
    (Path(base) / "first").mkdir()
    met = list_met(Path(base) / "first", words, places.split(","))
    chosen = random.Random(int(seed))
    order = sorted(met)
    chosen.shuffle(order)
    heard = 0
    for number in range(int(rounds)):
        point, sent = order[number % len(order)], chosen.choice(_SIGNALS)
        count = 1 if number < len(order) else chosen.randint(1, met[point])
        folder = Path(base) / str(number)
        folder.mkdir()
        wrong = run_round(folder, words, point, count, sent)
        heard += wrong is not None
        if wrong:
            sys.stdout.write(f"{point} {sent.name} {'; '.join(wrong)}\n")
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(f"{len(order)} points, {heard} signals\n")


if __name__ == "__main__":
    main()
