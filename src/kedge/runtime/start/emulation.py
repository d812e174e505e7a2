# SPDX-License-Identifier: BSD-3-Clause
"""Which system calls are emulated in a container: those of root, and for a step of a build the waiting for disks."""

from __future__ import annotations

from kedge.runtime.mounts.operations import IMAGE_ROOT
from kedge.runtime.processes.fakeroot_emulation import EmulatedCalls, make_filter, prepare_emulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.options import RunOptions
    from kedge.runtime.processes.owner_recorder import OwnerRecorder


def choose_emulation(options: RunOptions, machine: str, is_alone: bool) -> Callable[[], None] | None:
    """What puts the filter on the program; `is_alone` says that root is the only user there is."""
    plain = prepare_emulation(machine)
    if options.step is None or plain is None:
        return plain
    from kedge.runtime.processes.file_capabilities import takes_capabilities  # late: only builds have steps

    has_none = is_alone and not takes_capabilities(options.step.changes or options.image)
    calls = EmulatedCalls(owners=is_alone, attributes=has_none, syncs=True)
    return StepEmulation(machine, calls, IMAGE_ROOT if options.step.context else "/")


class StepEmulation:
    """The emulation in a step of a build, which remembers to whom files were given."""

    def __init__(self, machine: str, calls: EmulatedCalls, image_root: str) -> None:
        self._image_root = image_root  # where the image is in the container
        self._machine = machine
        self._calls = calls
        self._recorder: OwnerRecorder | None = None

    def prepare(self) -> None:
        """Start what remembers; to be called while the host's tree is the root."""
        if not self._calls.owners:
            return
        from kedge.runtime.processes.owner_recorder import OwnerRecorder  # late: only builds have steps

        self._recorder = OwnerRecorder(self._machine, self._image_root)

    def __call__(self) -> None:
        """Put the filter on this process and all that it starts."""
        if self._recorder is not None:
            self._calls.notices = True
            if self._recorder.filter_calls(make_filter(self._machine, self._calls)):
                return
            self._calls.notices = False
        emulate = prepare_emulation(self._machine, self._calls)
        if emulate is not None:
            emulate()
