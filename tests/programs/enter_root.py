# SPDX-License-Identifier: BSD-3-Clause
"""enter_root.py ROOT UID SHM WORD...: become a program in another root file system, as an ordinary user.

pivot_root and not chroot: the kernel gives no user namespaces to processes in a chroot. /proc, /dev and /sys are this
machine's; /dev/shm is a new one with as many bytes as SHM says.
"""

import ctypes
import os
import sys

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 4096, 16384, 1 << 18, 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, kind=None, flags=0, data=None):
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    check(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))


root, uid, shm, *words = sys.argv[1:]
check(libc.unshare(CLONE_NEWNS))
mount(None, "/", flags=MS_REC | MS_PRIVATE)
mount(root, root, flags=MS_BIND | MS_REC)
for name in ("proc", "sys", "dev"):
    mount(f"/{name}", f"{root}/{name}", flags=MS_BIND | MS_REC)
mount("tmpfs", f"{root}/dev/shm", "tmpfs", data=f"size={shm},mode=1777")
os.chdir(root)
check(libc.syscall(PIVOT_ROOT, b".", b"mnt"))
os.chdir("/")
check(libc.umount2(b"/mnt", MNT_DETACH))
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
os.chdir(os.environ["HOME"])
os.execve(words[0], words, dict(os.environ))
