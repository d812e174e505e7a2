# SPDX-License-Identifier: BSD-3-Clause
"""Programs in a container that is there already: a rank that joins the others of its launch, a command in an instance.

After joining, the root is the container's and nothing of the host can be imported. So the host's tree is made the root
again while the start is planned, with the container behind a descriptor; the last step goes back into it.
"""

from __future__ import annotations

import os

from kedge.container.facts import Additions, ImageFacts
from kedge.container.flags import collect_binds
from kedge.container.mount_operations import ContainerView
from kedge.container.mounting import PlanRequest, change_directory, plan_start_directory
from kedge.container.payload import plan_payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kedge.container.facts import HostFacts, Payload
    from kedge.container.mounting import HostRoot
    from kedge.container.options import RunOptions
    from kedge.container.start.services import Say


class JoinedContainer:
    """A container that was joined a moment ago."""

    def __init__(self, host_root: HostRoot) -> None:
        self.host_root = host_root
        self.emulate: Callable[[], None] | None = None
        self.root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.look_out()

    def look_out(self) -> None:
        """Let the host's tree be the root."""
        self.host_root.restore()

    def enter(self, folders: Sequence[str], *, is_strict: bool) -> None:
        """Go into the container for good, to the first of the directories that is there."""
        self.host_root.leave()
        os.fchdir(self.root)
        os.chroot(".")
        os.chdir("/")
        for folder in folders:
            try:
                change_directory(folder)
                return
            except (OSError, ValueError) as problem:  # no path can hold a NUL, but an image's config can
                if is_strict:
                    self.look_out()
                    raise _refuse_folder(folder, problem) from None

    def plan(self, options: RunOptions, host: HostFacts, image: ImageFacts, say: Say) -> Payload:
        """What to start, for the container as it is; at the end we are in it."""
        image.view = ContainerView(self.root)
        additions = Additions()
        if options.asks_devices:
            from kedge.container.devices import plan_devices  # late: most containers ask for no device

            additions = plan_devices(options, host, image)
        payload = plan_payload(options, host, image, additions, collect_binds(options, host.environ, host.cwd))
        for level, texts in (("once", payload.warnings), ("note", payload.notes)):
            for text in texts:
                say(level, text)
        request = PlanRequest(options, host, image, additions, payload)
        if options.fakeroot and _knows_root_alone():
            from kedge.container.processes.fakeroot_emulation import prepare_emulation  # late: only with --fakeroot

            self.emulate = prepare_emulation(host.machine)
        start = plan_start_directory(request)
        self.enter(start.directories, is_strict=start.is_strict)
        return payload


def _knows_root_alone() -> bool:
    """Whether the user namespace has no user but root, so that changes of users must be made believe."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        words = file.read().split()
    return len(words) == 3 and words[0] == "0" and words[2] == "1"


def _refuse_folder(folder: str, problem: OSError | ValueError) -> Exception:
    from kedge.errors import MountFailed  # late: only for an error

    return MountFailed(
        f"cannot change to {folder} in the container: {getattr(problem, 'strerror', problem)}",
        hint="the directory must exist inside the container: bind it with -B, or choose another --pwd",
    )
