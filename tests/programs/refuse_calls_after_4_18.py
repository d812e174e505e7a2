# SPDX-License-Identifier: BSD-3-Clause
"""refuse_calls_after_4_18.py WORD...: become a program for which the kernel answers as Linux 4.18, RHEL 8's, would.

A filter for system calls does it, for the program and all that it starts. Every machine gives new calls the same
numbers since 5.1, from 424 (pidfd_send_signal) on, so one comparison refuses them all: close_range, openat2, clone3,
faccessat2, pidfd_open, the calls of the new mounts, landlock, io_uring, what comes. Options that older calls got since
are answered as an unknown option was.
"""

import ctypes
import errno
import os
import struct
import sys

FIRST_NEW_CALL = 424
MACHINES = {
    "x86_64": {"ioctl": 16, "waitid": 247, "seccomp": 317, "memfd_create": 319},
    "aarch64": {"ioctl": 29, "waitid": 95, "seccomp": 277, "memfd_create": 279},
}
NUMBERS = MACHINES[os.uname().machine]
P_PIDFD, LOOP_CONFIGURE = 3, 0x4C0A
SECCOMP_SET_MODE_FILTER, SECCOMP_FLAGS_KNOWN, MEMFD_FLAGS_NEW = 1, 7, 0x18
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, EQUAL, FROM_ON, ABOVE, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x50000


def arguments(place):
    return 16 + 8 * place  # of struct seccomp_data; the low half comes first on both machines


def refuse(name, tests, number):
    """Lines that answer one call with an error where all tests hold: (argument, comparison, value)."""
    lines = []
    for argument, comparison, value in tests:
        left = 2 * (len(tests) - 1) - len(lines)
        lines += [(LOAD, 0, 0, arguments(argument)), (comparison, 0, left + 1, value)]
    lines.append((ANSWER, 0, 0, FAIL | number))
    return [(LOAD, 0, 0, 0), (EQUAL, 0, len(lines), NUMBERS[name]), *lines]


lines = [
    *[(LOAD, 0, 0, 0), (FROM_ON, 0, 1, FIRST_NEW_CALL), (ANSWER, 0, 0, FAIL | errno.ENOSYS)],
    *refuse("ioctl", [(1, EQUAL, LOOP_CONFIGURE)], errno.EINVAL),
    *refuse("waitid", [(0, EQUAL, P_PIDFD)], errno.EINVAL),
    *refuse("seccomp", [(0, EQUAL, SECCOMP_SET_MODE_FILTER), (1, ABOVE, SECCOMP_FLAGS_KNOWN)], errno.EINVAL),
    *refuse("memfd_create", [(1, ANY_BIT, MEMFD_FLAGS_NEW)], errno.EINVAL),
    (ANSWER, 0, 0, ALLOW),
]
packed = b"".join(struct.pack("=HBBI", *line) for line in lines)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


libc = ctypes.CDLL(None, use_errno=True)
# Root needs no PR_SET_NO_NEW_PRIVS, which would take newuidmap and fusermount away from what is tested.
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(lines), packed)), 0, 0):
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
