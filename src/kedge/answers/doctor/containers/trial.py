# SPDX-License-Identifier: BSD-3-Clause
"""Tries in a child process what a container would do, so that nothing of it remains."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial

from kedge.base.frozen import frozen
from kedge.container.facts import HostFacts
from kedge.container.mounting import OTHER_NAMESPACES, enter_other_namespaces, enter_user_namespace
from kedge.container.options import RunOptions
from kedge.errors import LimitReached, ProgramFailed
from kedge.system import libc
from kedge.system.bounded_children import ANSWERED, REFUSED, BoundedTask, run_bounded
from kedge.system.libc import MS_NODEV, MS_NOSUID
from kedge.system.views import DirectoryView

USER_NAMESPACE = "a user namespace"
WORK = "the work itself"
PLACE = "/tmp"  # covered by memory in the child's own mount namespace: any directory that every machine has
_SECONDS = 5.0  # the check that tries has a deadline of its own, which is earlier


@frozen
class KernelRefusal:
    """The step that the kernel refused, and its error."""

    step: str
    number: int
    words: str

    @property
    def problem(self) -> OSError:
        """The refusal as the error of a container's start."""
        return OSError(self.number, self.words)


def try_namespaces(environ: Mapping[str, str], work: Callable[[], None] | None = None) -> KernelRefusal | None:
    """Create the namespaces of this user's containers and do `work` in them; None: it worked.

    An OSError of `work` is a refusal too. Raises if the trial itself was not possible.
    """
    outcome = run_bounded([BoundedTask("trial", partial(_try, environ, work), _SECONDS)], seconds=_SECONDS)["trial"]
    if outcome.state == ANSWERED:
        step, number, words = outcome.answer.decode(errors="replace").rstrip("\n").split("\t")
        return KernelRefusal(step, int(number), words) if step else None
    if outcome.state == REFUSED:
        raise LimitReached("cannot start another process for the check")
    raise ProgramFailed("the process of the check gave no answer")


def cover_place() -> None:
    """Mount an empty tmpfs on PLACE, inside the namespaces."""
    libc.mount("kedge", PLACE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")


def _try(environ: Mapping[str, str], work: Callable[[], None] | None) -> bytes:
    step = USER_NAMESPACE
    try:
        if os.getuid() != 0:  # root's containers have none
            host = HostFacts(view=DirectoryView("/"), environ=environ, uid=os.getuid(), gid=os.getgid())
            enter_user_namespace(host, as_root=False)
        step = OTHER_NAMESPACES
        enter_other_namespaces(RunOptions())
        step = WORK
        if work is not None:
            work()
    except OSError as problem:
        words = (problem.strerror or str(problem)).replace("\t", " ").replace("\n", " ")
        return f"{step}\t{problem.errno or errno.EIO}\t{words}".encode()
    return b"\t0\t"
