# SPDX-License-Identifier: BSD-3-Clause
"""A build whose only step is the attacking program: BASE CHANGES WAY READONLY MOUNTPOINT ARGUMENT...

WAY is `step` for a step in the image, `users` for one that has all users of the image, `script` for one with the
programs of the host.
"""

from __future__ import annotations

import sys

from kedge.container.facts import Bind
from kedge.container.start.build_step import StepProgram, StepRoot, run_build_step
from kedge.container.start.host_script import HostScript, run_host_script


def write(data: bytes) -> None:
    """What the step says is what this says."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


base, changes, way, readonly, mountpoint, *arguments = sys.argv[1:]
root = StepRoot(base, (), changes)
if way in ("step", "users"):
    binds = [Bind(readonly, "/data", readonly=True), Bind(mountpoint, "/mountpoint")]
    program = StepProgram(["/bin/attack", *arguments], {"ATTACK_FLAG": ""})
    status = run_build_step(root, program, write, binds=binds, maps_users=way == "users")
    assert root.has_users == (way == "users")
    sys.exit(status)
texts = [f"{readonly}:/data:ro", f"{mountpoint}:/mountpoint"]
sys.exit(run_host_script(root, HostScript(["/rootfs/bin/attack", *arguments]), write, binds=texts))
