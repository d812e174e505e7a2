# SPDX-License-Identifier: BSD-3-Clause
"""Which system calls are emulated in a container: those of root, and for a step of a build the waiting for disks."""

from __future__ import annotations

import os

from kedge.base.owner_records import NAME_ATTRIBUTE
from kedge.container.mount_operations import IMAGE_ROOT
from kedge.container.processes.emulated_calls import IDENTITY_CALLS
from kedge.container.processes.fakeroot_emulation import EmulatedCalls, make_filter, prepare_emulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.container.image_users import ImageUser
    from kedge.container.options import RunOptions
    from kedge.container.processes.owner_recorder import OwnerRecorder

_FIRST_WITH_FILES = (5, 9)  # the first Linux in which a supervisor can answer with an open file


def choose_emulation(
    options: RunOptions, machine: str, is_alone: bool, *, is_mapped: bool = False
) -> Callable[[], None] | None:
    """What puts the filter on the program.

    `is_alone` says that root is the only user there is, `is_mapped` that there are others, by subordinate ids.
    """
    plain = prepare_emulation(machine)
    if options.step is None or plain is None:
        return plain
    from kedge.container.processes.capabilities import takes_capabilities  # late: only builds have steps

    has_none = is_alone and not takes_capabilities(options.step.changes or options.image)
    calls = EmulatedCalls(owners=is_alone, attributes=has_none, syncs=True)
    calls.devices = is_mapped and machine in IDENTITY_CALLS
    emulation = StepEmulation(machine, calls, IMAGE_ROOT if options.step.context else "/")
    emulation.has_named_notes = any(map(_has_named_notes, (options.image, *options.step.layers)))
    return emulation


class StepEmulation:
    """The emulation in a step of a build, which remembers to whom files were given."""

    def __init__(self, machine: str, calls: EmulatedCalls, image_root: str) -> None:
        self._image_root = image_root  # where the image is in the container
        self._machine = machine
        self._calls = calls
        self._calls.identities = calls.owners and machine in IDENTITY_CALLS and _read_release() >= _FIRST_WITH_FILES
        self._recorder: OwnerRecorder | None = None
        self._user: ImageUser | None = None
        self.has_named_notes = False

    def takes_user(self, user: ImageUser) -> bool:
        """Let the program be a user of the image; False where that is not emulated here."""
        from kedge.container.processes.owner_recorder import can_leave_calls  # late: as below

        if not self._calls.identities or not can_leave_calls():
            return False
        self._user = user
        return True

    def prepare(self) -> None:
        """Start what remembers; to be called while the host's tree is the root."""
        if not self._calls.owners and not self._calls.devices:
            return
        from kedge.container.processes.owner_recorder import (
            DeviceRecorder,  # late, all: only builds have steps
            OwnerRecorder,
        )
        from kedge.container.processes.process_identities import Identity

        first = Identity()
        if self._user is not None:
            first = Identity((self._user.uid,) * 3, (self._user.gid,) * 3, _list_groups(self._user))
        kind = DeviceRecorder if self._calls.devices else OwnerRecorder
        self._recorder = kind(
            self._machine,
            self._image_root,
            first,
            knows_users=self._calls.identities,
            has_named_notes=self.has_named_notes,
        )

    def __call__(self) -> None:
        """Put the filter on this process and all that it starts."""
        if self._recorder is not None:
            self._calls.notices = True
            if self._recorder.filter_calls(make_filter(self._machine, self._calls)):
                return
            self._calls.notices = self._calls.identities = False
        emulate = prepare_emulation(self._machine, self._calls)
        if emulate is not None:
            emulate()


def _list_groups(user: ImageUser) -> tuple[int, ...]:
    """The supplementary groups; the first is among them, as initgroups(3) has it."""
    return tuple(dict.fromkeys((user.gid, *user.groups)))


def _has_named_notes(folder: str) -> bool:
    """Whether a layer has owners of links, which are noted at directories."""
    try:
        return NAME_ATTRIBUTE in os.listxattr(folder)
    except OSError:
        return False


def _read_release() -> tuple[int, ...]:
    """The version of the kernel: its first two numbers."""
    numbers = os.uname().release.replace("-", ".").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
