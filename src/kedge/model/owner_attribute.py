# SPDX-License-Identifier: BSD-3-Clause
"""The extended attribute in which a step of a build notes to whom its program gave a file, where nobody else exists.

A container writes it (`runtime/processes/owner_recorder.py`); a layer has the numbers instead (`layers/owners.py`).
"""

from __future__ import annotations

OWNER_ATTRIBUTE = "user.kedge.owner"
_LARGEST = (1 << 32) - 2


def encode_owner(uid: int, gid: int) -> bytes:
    """The attribute's value."""
    return b"%d:%d" % (uid, gid)


def decode_owner(value: bytes) -> tuple[int, int] | None:
    """User and group; None for what is no such value, as a program may have written anything there."""
    uid, _, gid = value.partition(b":")
    if not (uid.isdigit() and gid.isdigit()) or len(value) > 21 or max(int(uid), int(gid)) > _LARGEST:
        return None
    return int(uid), int(gid)
