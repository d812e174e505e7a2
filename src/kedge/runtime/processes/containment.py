# SPDX-License-Identifier: BSD-3-Clause
"""What --contain takes from a program beside files: typing into the caller's terminal, and the caller's keys."""

from __future__ import annotations

from kedge.posix import libc
from kedge.runtime.processes.seccomp import key_call, make_containing_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def find_containment(machine: str) -> Callable[[], None] | None:
    """What is to be called just before the program starts; None where the numbers of calls are not known."""
    program = make_containing_filter(machine)
    if not program:
        return None
    call = key_call(machine)

    def contain() -> None:
        try:  # noqa: SIM105 - contextlib costs a start
            libc.join_session_keyring(call)  # the kernel itself looks there, for file systems that need keys
        except OSError:
            pass  # a kernel without keys, one that forbids them here, or too many keyrings: there is the filter
        libc.filter_calls(program)

    return contain
