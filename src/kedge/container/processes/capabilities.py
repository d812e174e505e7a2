# SPDX-License-Identifier: BSD-3-Clause
"""Capabilities that root in a container is to be without: --drop-caps and --no-privs.

A user's program has none anyway. Who is root gets what the bounding set has when a program starts, so taking them out
of that set is enough. The names are those of linux/capability.h, in its order.
"""

from __future__ import annotations

import os

from kedge.system.libc import O_TMPFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.options import RunOptions

NAMES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)


def choose_dropped(options: RunOptions) -> list[int]:
    """The numbers of the capabilities to drop; a name that does not exist is an error."""
    if options.no_privs and not options.keep_privs:
        return list(range(len(NAMES)))
    dropped: list[int] = []
    for text in options.drop_caps:
        for word in text.replace(" ", ",").split(","):
            name = word.upper().removeprefix("CAP_")
            if name == "ALL":
                return list(range(len(NAMES)))
            if name and name not in NAMES:
                from kedge.errors import UsageError  # late: only for an error

                raise UsageError(
                    f"unknown capability '{word}'", hint="use names like CAP_NET_RAW, or 'all' for all of them"
                )
            if name:
                dropped.append(NAMES.index(name))
    return sorted(dropped)


# Whether root of a user namespace can give a file capabilities here, as rpm and setcap do.
#
# The kernel lets it since 4.14, on file systems with extended attributes; not on NFS and most parallel file systems.

_ATTRIBUTE = "security.capability"
_NONE = b"\x00\x00\x00\x02" + bytes(16)  # struct vfs_cap_data of linux/capability.h, revision 2: no capability


def takes_capabilities(folder: str) -> bool:
    """Tried with a file that never gets a name; to be asked inside of the user namespace."""
    try:
        file = os.open(folder, O_TMPFILE | os.O_DIRECTORY | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        os.setxattr(file, _ATTRIBUTE, _NONE)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
