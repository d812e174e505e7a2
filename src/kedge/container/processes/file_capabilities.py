# SPDX-License-Identifier: BSD-3-Clause
"""Whether root of a user namespace can give a file capabilities here, as rpm and setcap do.

The kernel lets it since 4.14, on file systems with extended attributes; not on NFS and most parallel file systems.
"""

from __future__ import annotations

import os

from kedge.system.libc import O_TMPFILE

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
