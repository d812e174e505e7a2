# SPDX-License-Identifier: BSD-3-Clause
"""No signal is lost on its way to a child: not before a wait, not in another thread, not while a child is made."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests.builders.rows import each_row

PATIENCE = 20  # seconds; without what is tested here each of these would wait for ever

# A child whose signal goes to another thread, while the main thread waits for a lock.
ELSEWHERE = """
import signal, sys, threading, time
from kedge.system.process import run_in_child

def end(number, frame):
    raise SystemExit(40 + number)

def send():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), NUMBER)

def work():
    try:
        threading.Thread(target=send, daemon=True).start()
        threading.Event().wait()
    except SystemExit as problem:
        return problem.code

signal.signal(NUMBER, end)
sys.exit(run_in_child(work))
"""
# A parent that gets the signal before it waits, and passes it on.
BEFORE = """
import os, signal, sys, time
from kedge.system.process import run_in_child

def work():
    time.sleep(600)

signal.signal(NUMBER, signal.SIG_DFL)
sys.exit(run_in_child(work, lambda: os.kill(os.getpid(), NUMBER)))
"""
# A child that gets the signal while it is made: its listener takes a while to start.
EARLY = """
import os, signal, sys, time
from kedge.system import process

class Ended(BaseException):
    pass

def end(number, frame):
    raise Ended(number)

def start_slowly(listener):
    os.kill(os.getpid(), NUMBER)
    time.sleep(0.2)

def work():
    time.sleep(600)

signal.signal(NUMBER, end)
process._Listener.start = start_slowly
sys.exit(process.run_in_child(work, None, lambda problem: 40 + problem.args[0]))
"""
ATTACHED = """
import os, sys
from kedge.system.spawn import run_attached
print("ready", flush=True)
sys.exit(run_attached([sys.executable, "-c", "import time; time.sleep(600)"], os.environ))
"""


def end_of(program: str, number: signal.Signals) -> int:
    words = [sys.executable, "-c", program.replace("NUMBER", str(int(number)))]
    return subprocess.run(words, timeout=PATIENCE, check=False).returncode


def test_a_signal_that_another_thread_gets_wakes_the_main_thread() -> None:
    assert end_of(ELSEWHERE, signal.SIGTERM) == 40 + signal.SIGTERM


def test_a_signal_that_comes_before_the_wait_reaches_the_child() -> None:
    assert end_of(BEFORE, signal.SIGINT) == 128 + signal.SIGINT


def test_a_signal_that_comes_before_the_childs_work_is_reported() -> None:
    assert end_of(EARLY, signal.SIGHUP) == 40 + signal.SIGHUP


@each_row("moment", [0.0, 0.003, 0.03])
def test_a_signal_at_any_moment_ends_a_program_that_is_waited_for(moment: float) -> None:
    with subprocess.Popen([sys.executable, "-c", ATTACHED], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(moment)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) in (128 + signal.SIGTERM, -signal.SIGTERM)  # the latter before it was held back


def test_an_ignored_signal_stays_ignored() -> None:
    program = BEFORE.replace("signal.SIG_DFL", "signal.SIG_IGN").replace("time.sleep(600)", "return 7")
    assert end_of(program, signal.SIGHUP) == 7


def test_a_child_is_waited_for_where_its_end_was_to_be_ignored() -> None:
    program = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + BEFORE
    assert end_of(program.replace("time.sleep(600)", "return 7").replace("os.kill", "print"), signal.SIGTERM) == 7
