# SPDX-License-Identifier: BSD-3-Clause
"""Encrypted images of Apptainer 1.3 and newer: a SquashFS that holds a gocryptfs directory that holds a SquashFS.

Each of the three is mounted by a program of its own. Nothing is decrypted to a disk, and each program ends when what it
serves is not mounted any more: squashfuse first, so that gocryptfs is next.
"""

from __future__ import annotations

import errno
import os

from kedge.container.fuse_program import find_program, serve_fuse
from kedge.container.mounts.squashfuse import FuseServer, mount_squashfuse, needs_company, squashfuse_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.image.image_file import ImageFile

_PROGRAM = "gocryptfs"
_INNER = "squashfs-"  # how the names of the inner file begin


def require_programs(image: ImageFile, server: tuple[str, str]) -> str:
    """The squashfuse that helps to open an encrypted image; raises where a program is missing."""
    program, refusal = server
    if program and needs_company(program):
        refusal = f"{program} uses libfuse 2"
    if not refusal and not find_program(_PROGRAM):
        refusal = f"{_PROGRAM} is not installed"
    if refusal:
        from kedge.errors import MountFailed  # late: success needs no errors

        raise MountFailed(
            f"cannot open the encrypted image {image.path}: {refusal}",
            hint="it needs gocryptfs and a squashfuse of libfuse 3: ask the administrators to install both",
        )
    return program


def mount_encrypted(place: tuple[str, int, str], program: str, server: FuseServer, base: str, secret: str) -> None:
    """Put the file system inside an encrypted one on the target; raises OSError with what a program said."""
    file, offset, target = place
    outer, plain, key = (f"{base}/{name}" for name in ("encrypted", "decrypted", "passphrase"))
    for folder in (outer, plain):
        os.mkdir(folder, 0o700)
    mount_squashfuse(file, offset, outer, program, server)
    with open(key, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:  # in memory, for a moment
        written.write(secret)
    try:
        serve_fuse([find_program(_PROGRAM), *_words(key), outer], plain, _PROGRAM, files=[key, outer])
    finally:
        os.unlink(key)
    inner = next((name for name in os.listdir(plain) if name.startswith(_INNER)), "")
    if not inner:
        raise OSError(errno.EINVAL, "the encrypted file system contains no SquashFS")
    file = f"{plain}/{inner}"
    serve_fuse(squashfuse_words(program, 0, file), target, "squashfuse", files=[file])


def _words(key: str) -> list[str]:
    return ["-fg", "-ro", "-q", "-nosyslog", "-passfile", key]
