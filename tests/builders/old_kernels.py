# SPDX-License-Identifier: BSD-3-Clause
"""A kernel that can less: a module that Python loads at its start lets single calls of kedge fail."""

from __future__ import annotations

import os
from pathlib import Path

REFUSALS = """\
import errno, os
import kedge.posix.libc as libc

refused = os.environ["REFUSED"].split(",")
mount = libc.mount

def refuse(number):
    def call(*arguments):
        raise OSError(number, os.strerror(number))
    return call

def mount_some(source, target, kind, flags, data=""):
    if kind in refused:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)
    mount(source, target, kind, flags, data)

libc.mount = mount_some
if "mount_setattr" in refused:
    libc.set_mount_attributes = refuse(errno.ENOSYS)
if "openat2" in refused:
    libc.open_in_root = refuse(errno.ENOSYS)
if "pivot_root" in refused:
    libc.pivot_root = refuse(errno.EINVAL)
if "flock" in refused:
    import fcntl
    fcntl.flock = refuse(errno.ENOSYS)
"""


def play_refusals(folder: Path, *calls: str, path: str | None = None) -> dict[str, str]:
    """The environment of a machine whose kernel refuses these; the module lies in `folder`.

    `path` is where else Python looks for modules, if not where the tests do.
    """
    place = folder / "site"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(REFUSALS)
    return {
        "PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '') if path is None else path}".rstrip(":"),
        "REFUSED": ",".join(calls),
    }
