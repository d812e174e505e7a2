# SPDX-License-Identifier: BSD-3-Clause
"""Starting a container that stays: away from the terminal, the session and the open files of who started it.

A pipe tells the starter what happens: it ends when the program has started, or brings what went wrong before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from kedge.container.mount_operations import Squashfuse
from kedge.container.mounts.squashfuse import needs_company
from kedge.container.processes.supervise import run_as_init
from kedge.container.start_container import (
    become,
    begin,
    complete,
    enter_namespaces,
    enter_pid_namespace,
    limit_resources,
    prepare_container,
)
from kedge.errors import CannotStart, KedgeError, all_errors
from kedge.system.spawn import close_all, fork_process, list_inherited

if TYPE_CHECKING:
    from kedge.container.options import RunOptions
    from kedge.container.start.services import FindServices, Say
    from kedge.container.start_container import BuiltRoot, Container


_KEEP = b"k"


class _Detached:
    """A container that was started, and ends with this process unless it is to be kept."""

    def __init__(self, container: Container, starter: int, going: int) -> None:
        self.image = container.located.shown
        self.kind = container.located.image.kind
        root = container.located.root
        self.passing = root.folder if root.is_temporary else ""  # unpacked for it alone
        self.pid = 0  # of the container's first process
        self._starter = starter
        self._going = going

    def keep(self) -> None:
        """From here on it stays, whatever happens to this process."""
        os.write(self._going, _KEEP)
        self.leave()

    def leave(self) -> None:
        """Let the process in between end, which ends the container unless it was told to keep it."""
        if self._going >= 0:
            os.close(self._going)
            self._going = -1
            os.waitpid(self._starter, 0)

    def give_up(self) -> None:
        """End it, and remove what was made for it."""
        self.leave()
        if self.passing:
            from kedge.container.start.temporary_image import remove_temporary_image  # late: only with --disable-cache

            remove_temporary_image(self.passing)


def start_detached(options: RunOptions, say: Say, services: FindServices, log_out: int, log_err: int) -> _Detached:
    """Start the container and return once its program runs; on failure raise the reason and leave nothing behind."""
    callers = list_inherited()  # locks and pipes of the caller, which an instance must not keep
    container = prepare_container(options, say, services)
    reading, writing = os.pipe()
    going_out, going_in = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = fork_process()
    if child == 0:
        close_all([reading, going_in])
        container.say = lambda level, text: _tell(writing, {"say": [level, text]})
        _run_apart(container, callers, (log_out, log_err), writing, going_out)
    close_all([writing, going_out])
    started = _Detached(container, child, going_in)
    news = _News(say)
    try:
        news.listen(reading)
        news.raise_problem()
    except BaseException:
        started.give_up()
        raise
    finally:
        os.close(reading)
    started.pid = news.pid
    return started


def _begin_session(callers: list[int], logs: tuple[int, int]) -> None:
    os.setsid()
    # A script's background jobs ignore SIGINT, and nohup SIGHUP: an instance would never hear that it is to stop.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    close_all([file for file in callers if file not in logs])
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (logs[0], 1), (logs[1], 2)):
        os.dup2(source, target)
    os.close(null)


def _run_apart(container: Container, callers: list[int], logs: tuple[int, int], writing: int, going: int) -> NoReturn:
    """In the process in between: make the namespaces and their first process, and see to it until the starter has."""
    try:
        _begin_session(callers, logs)
        limit_resources(container.options)
        servers = enter_namespaces(container)
        built = None if _needs_company(container) else begin(container, servers)
        enter_pid_namespace(container)
        first = fork_process()
        if first == 0:
            os.close(going)
            run_as_init(
                lambda: _become_program(container, built or begin(container, servers)), with_init=True, outlives=True
            )
        _tell(writing, {"pid": first})
        os.close(writing)
        if os.read(going, 1) != _KEEP:  # the start failed, or the starter was killed
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
        os._exit(0)
    except BaseException as problem:  # in whichever of the processes: the starter reports it
        _tell(writing, _describe_problem(problem))
        os._exit(255)


def _needs_company(container: Container) -> bool:
    """Whether a FUSE program is needed that would end with this process, which does not stay."""
    mounts = (*container.root_mounts, *container.layer_mounts, *container.image_mounts)
    return any(needs_company(mount.program) for mount in mounts if isinstance(mount, Squashfuse))


def _become_program(container: Container, built: BuiltRoot) -> None:
    complete(container, built)
    if built.payload.argv:  # an image without a start script gives an instance that only waits
        become(container, built.payload)


def _describe_problem(problem: BaseException) -> dict[str, object]:
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
        unfinished = b""
        while piece := os.read(reading, 65536):
            *lines, unfinished = (unfinished + piece).split(b"\n")
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
        report = self.problem or {"message": "the container's first process ended without an error message"}
        kinds = {kind.reference: kind for kind in all_errors()}
        kind = kinds.get(str(report.get("error")), CannotStart)
        raise kind(str(report["message"]), context=report.get("context"), hint=report.get("hint"))
