# SPDX-License-Identifier: BSD-3-Clause
"""Restrictions on processes: seccomp filters, and no_new_privs, which disables setuid programs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.container.processes.fakeroot_emulation import prepare_emulation

_ACTIONS = "proc/sys/kernel/seccomp/actions_avail"


def check_seccomp(surroundings: Surroundings) -> list[Finding]:
    """Check whether --fakeroot can use a filter for users without subordinate ids."""
    root = Path(surroundings.root)
    mode = read_status(root, "Seccomp")
    with contextlib.suppress(OSError):
        if "errno" not in (root / _ACTIONS).read_text(errors="replace").split():
            mode = ""
    if not mode:
        return [_refuse("the kernel offers no seccomp filters")]
    if prepare_emulation(os.uname().machine) is None:
        return [_refuse(f"kedge has no filter for {os.uname().machine}")]
    outer = " (an outer container or service already filters this shell)" if mode == "2" else ""
    return [Finding("seccomp", OK, f"filters are usable{outer}")]


def _refuse(reason: str) -> Finding:
    return Finding(
        "seccomp",
        NOTE,
        f"filters are not usable: {reason}",
        why="--fakeroot without subordinate ids cannot emulate 'chown' and similar calls, so apt, dnf and tar fail; "
        "everything else works",
        fix="ask the administrators for subordinate ids (see the check 'subordinate-ids')",
        docs="kedge help doctor seccomp",
    )


def check_new_privileges(surroundings: Surroundings) -> list[Finding]:
    """Check no_new_privs: services and containers set it, and child processes cannot clear it."""
    if read_status(Path(surroundings.root), "NoNewPrivs") != "1":
        return [Finding("setuid-programs", OK, "setuid programs work")]
    return [
        Finding(
            "setuid-programs",
            NOTE,
            "setuid programs do not work in this shell (no_new_privs is set)",
            why="newuidmap (--fakeroot with many users), fusermount, sudo and a setuid Apptainer fail; kedge's own "
            "containers do not need them",
            fix="it cannot be cleared: use a shell started another way (ssh, not a service or a container)",
            docs="kedge help doctor setuid-programs",
        )
    ]


def read_status(root: Path, name: str) -> str:
    """Read a line of /proc/self/status; empty if there is none."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/status").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    return ""
