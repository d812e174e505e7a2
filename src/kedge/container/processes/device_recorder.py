# SPDX-License-Identifier: BSD-3-Clause
"""Makes what stands for a device in a step of a build that knows the image's users: all else there is the kernel's.

Only real root can make devices, with subordinate ids or without.
"""

from __future__ import annotations

import os

from kedge.container.processes.owner_recorder import OwnerRecorder
from kedge.container.processes.process_identities import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.processes.file_calls import GivenFile
    from kedge.system.call_notices import CallNotice


class DeviceRecorder(OwnerRecorder):
    """Asks the kernel who a process is."""

    def _find_answer(self, name: str, notice: CallNotice) -> int | GivenFile | None:
        with open(f"/proc/{notice.process}/status", "rb") as file:
            lines = {line.partition(b":")[0]: line.split() for line in file}
        effective = int(lines[b"Uid"][2])
        return self._files.answers[name](notice, Identity((effective,) * 3))

    def _warn(self, what: str) -> None:
        os.write(2, f"kedge: {what} in this build\n".encode())
