# SPDX-License-Identifier: BSD-3-Clause
"""What is put on processes here: seccomp filters, and the rule that setuid programs get no rights."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kedge.doctor.finding import NOTE, OK, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.runtime.processes.fakeroot_emulation import prepare_emulation

_ACTIONS = "proc/sys/kernel/seccomp/actions_avail"


def check_seccomp(surroundings: Surroundings) -> list[Finding]:
    """Whether --fakeroot can let calls succeed by a filter, where a user has no subordinate ids."""
    root = Path(surroundings.root)
    mode = read_status(root, "Seccomp")
    with contextlib.suppress(OSError):
        if "errno" not in (root / _ACTIONS).read_text(errors="replace").split():
            mode = ""
    if not mode:
        return [_refuse("the kernel offers no seccomp filters")]
    if prepare_emulation(os.uname().machine) is None:
        return [_refuse(f"the filter is not written for {os.uname().machine}")]
    outer = " (a filter of an outer container or service is on this shell)" if mode == "2" else ""
    return [Finding("seccomp", OK, f"filters can be used{outer}")]


def _refuse(reason: str) -> Finding:
    return Finding(
        "seccomp",
        NOTE,
        f"cannot be used: {reason}",
        "--fakeroot without subordinate ids cannot let 'chown' and its kind succeed, so apt, dnf and tar fail there; "
        "everything else works",
        "ask the administrators for subordinate ids (see subordinate-ids)",
        "kedge help doctor seccomp",
    )


def check_new_privileges(surroundings: Surroundings) -> list[Finding]:
    """no_new_privs: services and containers set it, and it is inherited for ever."""
    if read_status(Path(surroundings.root), "NoNewPrivs") != "1":
        return [Finding("setuid-programs", OK, "setuid programs get their rights")]
    return [
        Finding(
            "setuid-programs",
            NOTE,
            "setuid programs get no rights in this shell (no_new_privs is on)",
            "newuidmap (--fakeroot with many users), fusermount, sudo and a setuid Apptainer fail here; kedge's own "
            "containers do not need them",
            "nothing takes it off: use a shell that was started another way (ssh, not a service or a container)",
            "kedge help doctor setuid-programs",
        )
    ]


def read_status(root: Path, name: str) -> str:
    """A line of /proc/self/status; the empty string where there is none."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/status").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    return ""
