# SPDX-License-Identifier: BSD-3-Clause
"""Which system calls are emulated in a container: those of root, and for a step of a build the waiting for disks."""

from __future__ import annotations

from kedge.runtime.processes.fakeroot_emulation import EmulatedCalls, prepare_emulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.step_options import StepOptions


def choose_emulation(
    machine: str, image: str, step: StepOptions | None, *, is_alone: bool
) -> Callable[[], None] | None:
    """What puts the filter on the program; `is_alone` says that root is the only user there is."""
    if step is None:
        return prepare_emulation(machine)
    from kedge.runtime.processes.file_capabilities import takes_capabilities  # late: only builds have steps

    has_none = is_alone and not takes_capabilities(step.changes or image)
    return prepare_emulation(machine, EmulatedCalls(owners=is_alone, attributes=has_none, syncs=True))
