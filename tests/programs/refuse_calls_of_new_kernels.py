# SPDX-License-Identifier: BSD-3-Clause
import errno
import os

from kedge.posix import libc

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
