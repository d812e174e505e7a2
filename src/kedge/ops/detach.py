# SPDX-License-Identifier: BSD-3-Clause
"""Starting a container that stays: away from the terminal, the session and the open files of who started it.

A pipe tells the starter what happens: it ends when the program has begun, or brings what went wrong before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from kedge.errors import CannotStart, KedgeError, all_errors
from kedge.ops.run import Container, become, build, enter_namespaces
from kedge.posix.spawn import close_all, fork_process, list_inherited
from kedge.runtime.supervise import run_as_init

if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.fuse import FuseServer
    from kedge.runtime.options import RunOptions

    Say = Callable[[str, str], None]


class Detached:
    """A container that was started: the number of its first process, and what it is made of."""

    def __init__(self, pid: int, image: str, kind: str) -> None:
        self.pid = pid
        self.image = image
        self.kind = kind


def start_detached(options: RunOptions, say: Say, log_out: int, log_err: int) -> Detached:
    """Start the container and return when its program has begun; raises what prevented it, with nothing left behind."""
    callers = list_inherited()  # locks and pipes of the caller, which an instance must not keep
    container = Container(options, say)
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = fork_process()
    if child == 0:
        os.close(reading)
        container.say = lambda level, text: _tell(writing, {"say": [level, text]})
        _begin_session(callers, (log_out, log_err))
        _run_apart(container, writing)
    os.close(writing)
    news = _News(say)
    try:
        news.listen(reading)
        os.waitpid(child, 0)
        news.raise_problem()
    except BaseException:
        if news.pid:
            os.kill(news.pid, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
    return Detached(news.pid, container.located.shown, container.located.image.kind)


def _begin_session(callers: list[int], logs: tuple[int, int]) -> None:
    os.setsid()
    close_all([file for file in callers if file not in logs])
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (logs[0], 1), (logs[1], 2)):
        os.dup2(source, target)
    os.close(null)


def _run_apart(container: Container, writing: int) -> NoReturn:
    """In the new session: make the namespaces and their first process, which outlives this one."""
    try:
        servers = enter_namespaces(container)
        first = fork_process()
        if first == 0:
            run_as_init(lambda: _become_program(container, servers), with_init=True, outlives=True)
        _tell(writing, {"pid": first})
        os._exit(0)
    except BaseException as problem:  # in whichever of the processes: the starter reports it
        _tell(writing, describe_problem(problem))
        os._exit(255)


def _become_program(container: Container, servers: list[FuseServer]) -> None:
    payload = build(container, servers)
    if payload.argv:  # an image without a start script gives an instance that only waits
        become(container, payload)


def describe_problem(problem: BaseException) -> dict[str, object]:
    """An error as one line of JSON can carry it."""
    if isinstance(problem, KedgeError):
        return {"problem": problem.as_dict()}
    return {"problem": {"message": f"{type(problem).__name__}: {problem}"}}


def _tell(writing: int, news: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the starter was killed
        os.write(writing, json.dumps(news).encode() + b"\n")


class _News:
    """What the processes of the new container tell their starter."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.pid = 0
        self.problem: dict[str, Any] | None = None

    def listen(self, reading: int) -> None:
        """Until all who could tell something have become programs or ended."""
        rest = b""
        while piece := os.read(reading, 65536):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, news: dict[str, Any]) -> None:
        if "say" in news:
            self.say(*news["say"])
        self.pid = news.get("pid", self.pid)
        self.problem = self.problem or news.get("problem")

    def raise_problem(self) -> None:
        """Raise here what was raised there."""
        if self.problem is None and self.pid:
            return
        told = self.problem or {"message": "the container's first process ended without a word"}
        kinds = {kind.reference: kind for kind in all_errors()}
        kind = kinds.get(str(told.get("error")), CannotStart)
        raise kind(str(told["message"]), context=told.get("context"), hint=told.get("hint"))
