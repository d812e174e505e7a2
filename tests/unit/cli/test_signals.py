# SPDX-License-Identifier: BSD-3-Clause
"""A signal at every point at which Python may raise it: it is raised, no lock stays taken, no process is left."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.cli.options import GlobalOptions
from kedge.cli.report import report_failure
from kedge.cli.signals import Terminated, raised_signals
from kedge.image.layers.content_spool import ContentSpool
from kedge.system.files import atomic_output
from kedge.system.forked_workers import share_work
from kedge.system.process import relay_program, run_into_files, run_program
from kedge.system.undivided import Undivided
from kedge.system.writer_processes import WriterProcesses
from tests.builders.own_children import list_children
from tests.builders.rows import each_row
from tests.builders.signal_points import Point, SignalAt, list_points

LOCKS = ("/threading.py", "/contextlib.py")
STARTS = ("/subprocess.py", "/system/process.py", "/system/forked_workers.py", "/system/writer_processes.py")


def raise_at(point: Point, work: Callable[[], object], number: int = signal.SIGTERM) -> bool:
    """Do the work with a signal at this point; whether the point was met. The signal must be raised if so."""
    watcher = SignalAt(point, number)

    def work_and_wait() -> None:
        with raised_signals():
            with watcher:
                work()
            for _ in range(3000 if watcher.came else 0):
                time.sleep(0.01)

    try:
        work_and_wait()
    except (Terminated, KeyboardInterrupt):
        assert watcher.came
    else:
        assert not watcher.came, f"{point}: nothing was raised"
    return watcher.came


class UsedCondition:
    """Takes a lock, waits and gives it back."""

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())

    def work(self) -> None:
        with self.condition:
            self.condition.wait(0.001)
            self.condition.notify_all()

    def is_free(self) -> bool:
        return self.condition.acquire(timeout=1)


class UsedEvent:
    """Has a lock inside."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def work(self) -> None:
        self.event.set()
        self.event.wait()
        self.event.clear()

    def is_free(self) -> bool:
        return self.event._cond.acquire(timeout=1)


class UsedStack:
    """Gives a lock back that it took in `enter_context`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def work(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.lock)

    def is_free(self) -> bool:
        return self.lock.acquire(timeout=1)


@each_row("used", [UsedCondition, UsedEvent, UsedStack])
@each_row("number", [signal.SIGINT, signal.SIGTERM])
def test_no_lock_stays_taken_at_any_point(used: type[UsedCondition | UsedEvent | UsedStack], number: int) -> None:
    points = list_points(used().work, LOCKS)
    assert len(points) > 3, points
    for point in points:
        each = used()
        raise_at(point, each.work, number)
        assert each.is_free(), point


def test_a_signal_in_an_endless_wait_or_swallowed_is_raised() -> None:
    # In a lock that nobody gives back the signal is raised where the main thread waits, unsafe or not
    def wait_for_ever() -> None:
        with raised_signals():
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            threading.Event().wait()

    with pytest.raises(Terminated):
        wait_for_ever()

    def drop_and_wait() -> None:
        with raised_signals():
            Swallowing()
            time.sleep(5)

    with pytest.raises(Terminated):
        drop_and_wait()


class Swallowing(io.RawIOBase):
    """A file whose end meets a signal: Python hides whatever is raised while a file that nobody uses is closed."""

    def close(self) -> None:
        if not self.closed:
            signal.raise_signal(signal.SIGTERM)
        super().close()


def sleep_relayed() -> None:
    relay_program(["sleep", "0.05"], lambda data: None)


def sleep_collected() -> None:
    run_program(["sleep", "0.05"])


def sleep_in_workers() -> None:
    share_work(2, 2, lambda item: time.sleep(0.02) or 0, lambda done: None)


def write_in_processes() -> None:
    writers = None
    try:
        with Undivided():
            writers = WriterProcesses.start(0, lambda token: b"", 2)
        writers.finish()
    except BaseException:
        if writers is not None:
            writers.kill()
        raise


@each_row("work", [sleep_relayed, sleep_collected, sleep_in_workers, write_in_processes])
def test_no_process_is_left_at_any_point(work: Callable[[], None]) -> None:
    before = set(list_children())  # of other tests
    points = list_points(work, STARTS)
    assert len(points) > 20, points
    ours = os.getpid()
    for point in points:
        try:
            raise_at(point, work)
        finally:
            if os.getpid() != ours:  # a forked worker in which the handler has raised
                os._exit(1)
        assert set(list_children()) <= before, point


def test_a_program_that_outlives_us_is_waited_for_at_any_point(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"]}

    def work() -> None:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        words = ["sh", "-c", f"sleep 0.02; touch {mark}"]
        run_into_files(words, tmp_path / "out", tmp_path / "err", environment=environment, directory=str(tmp_path))

    before = set(list_children())
    for point in list_points(work, STARTS):
        raise_at(point, work, signal.SIGINT)
        assert set(list_children()) <= before, point


def test_no_temporary_file_is_left_at_any_point(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "x.sif").unlink(missing_ok=True)
        with atomic_output(tmp_path / "x.sif") as file:
            file.write(b"x")

    points = list_points(work, ("/system/files.py", "/contextlib.py"))
    assert len(points) > 20, points
    for point in points:
        raise_at(point, work)
        assert [path.name for path in tmp_path.iterdir() if path.name != "x.sif"] == [], point


def test_no_spool_is_left_at_any_point(tmp_path: Path) -> None:
    def work() -> None:
        with ContentSpool(tmp_path / "x", writers=1) as spool:
            spool.add(b"x")
            spool.settle()

    before = set(list_children())
    points = list_points(work, ("/content_spool.py",))
    assert len(points) > 10, points
    for point in points:
        raise_at(point, work)
        assert set(list_children()) <= before, point
        assert list(tmp_path.iterdir()) == [], point


PACKER = """
import os, signal, sys, time
from kedge.system.piped_worker import PipedWorker
request = '{"name": "x", "diff_id": "", "codec": "", "block_size": 0, "threads": 1, "limits": {}}'
worker = PipedWorker("pack-layer", request)
for moment in range(100):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(worker._pid, number)
    time.sleep(0.003)
ended, status = os.waitpid(worker._pid, os.WNOHANG)
sys.exit(9 if ended else 0)
"""


def test_a_layers_process_hears_no_signal_from_its_very_beginning() -> None:
    done = subprocess.run([sys.executable, "-c", PACKER], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# A kedge that gets a signal while its Python starts, as seen by the kedge that starts it.
STARTING = """
import os, sys
from kedge.system.spawn import run_attached
started = (
    "import os, sys, time; os.kill(os.getpid(), NUMBER); time.sleep(0.1); sys.argv = ['kedge', 'help'];"
    "from kedge.cli.entry import main; sys.exit(main())"
)
sys.exit(run_attached([sys.executable, "-c", started], os.environ, is_kedge=True))
"""


@each_row("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_kedge_starts_a_kedge_ends_it_without_a_traceback(number: int) -> None:
    words = [sys.executable, "-c", STARTING.replace("NUMBER", str(int(number)))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "")


GUARDED = """
import sys
from pathlib import Path
from kedge.cli.guard import run_guarded
read = lambda: int(Path("/proc/self/oom_score_adj").read_text())
turns = lambda: round(sys.getswitchinterval() * 1e4)
before = read()
print(before, before + run_guarded("a test", lambda: read() - before), read())
print(turns(), run_guarded("a test", turns), turns())
"""


def test_the_guarded_child_is_killed_first_for_memory_and_gives_the_interpreter_lock_away_often() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=True)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    scores, turns = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    assert scores == [own, min(own + 100, 1000), own]
    assert turns == [50, 2, 50]  # tenths of milliseconds


class Interrupting:
    """An attribute that a signal meets while its class is made."""

    def __init__(self, raised: BaseException) -> None:
        self.raised = raised

    def __set_name__(self, owner: type, name: str) -> None:
        raise self.raised


@each_row(("raised", "number"), [(KeyboardInterrupt(), signal.SIGINT), (Terminated(signal.SIGTERM), signal.SIGTERM)])
def test_signal_while_a_class_is_made_is_no_bug(
    raised: BaseException, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - Python 3.11 wraps it in a RuntimeError, 3.12 does not
        type("Made", (), {"attribute": Interrupting(raised)})
    assert report_failure(caught.value, ["pull"], GlobalOptions()) == 128 + number
    assert "bug" not in capsys.readouterr().err


@each_row(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_signal_in_a_callback_of_the_interpreter_is_not_lost(number: int, kind: type[BaseException]) -> None:
    """What is raised while an object dies is swallowed, and printed as ignored."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def die_and_wait() -> None:
        with raised_signals():
            Dying()
            time.sleep(5)

    with pytest.raises(kind):
        die_and_wait()
