# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of the system calls that root emulation lets succeed, for all kinds of programs of a machine.

Sources: arch/x86/entry/syscalls/, arch/arm/tools/syscall.tbl, arch/powerpc/kernel/syscalls/ and, for aarch64 and
riscv64, include/uapi/asm-generic/unistd.h of Linux. The list follows what dpkg, rpm, apk, tar and the programs that add
users call. A 32-bit machine has two calls for most of them: one for numbers of 16 bits, one for 32.
"""

from __future__ import annotations

_GENERIC = (55, 54, 143, 144, 145, 146, 147, 149, 151, 152, 159, 91)
_THIRTY_TWO = (
    *(182, 212, 95, 207, 16, 198),  # chown, fchown, lchown
    *(23, 213, 46, 214, 70, 203, 71, 204, 164, 208, 170, 210),  # setuid, setgid, setreuid, setregid, setres[ug]id
    *(81, 206, 138, 215, 139, 216, 185),  # setgroups, setfsuid, setfsgid, capset
)

# chown and its like; setuid, setgid, setgroups and their like; capset
OWNERS = {
    "x86_64": (92, 93, 94, 260, 105, 106, 113, 114, 117, 119, 116, 122, 123, 126),
    "i386": (*_THIRTY_TWO, 298),
    "aarch64": _GENERIC,
    "arm": (*_THIRTY_TWO, 325),
    "ppc64le": (181, 95, 16, 289, 23, 46, 70, 71, 81, 164, 169, 138, 139, 184),
    "riscv64": _GENERIC,
}
# mknod and mknodat: the number, and which argument is the mode
NODES = {
    "x86_64": ((133, 1), (259, 2)),
    "i386": ((14, 1), (297, 2)),
    "aarch64": ((33, 2),),
    "arm": ((14, 1), (324, 2)),
    "ppc64le": ((14, 1), (288, 2)),
    "riscv64": ((33, 2),),
}
_SETXATTRAT = 463  # the same number on all architectures (Linux 6.13)
# setxattr, lsetxattr, fsetxattr
ATTRIBUTES = {
    "x86_64": (188, 189, 190, _SETXATTRAT),
    "i386": (226, 227, 228, _SETXATTRAT),
    "aarch64": (5, 6, 7, _SETXATTRAT),
    "arm": (226, 227, 228, _SETXATTRAT),
    "ppc64le": (209, 210, 211, _SETXATTRAT),
    "riscv64": (5, 6, 7, _SETXATTRAT),
}
# fsync, fdatasync, sync, syncfs, sync_file_range, msync
SYNCS = {
    "x86_64": (74, 75, 162, 306, 277, 26),
    "i386": (118, 148, 36, 344, 314, 144),
    "aarch64": (82, 83, 81, 267, 84, 227),
    "arm": (118, 148, 36, 373, 341, 144),
    "ppc64le": (118, 148, 36, 348, 308, 144),
    "riscv64": (82, 83, 81, 267, 84, 227),
}
# of OWNERS, those that say whom a file is given to, for programs of the machine's own kind
OWNER_CALLS = {
    "x86_64": {92: "chown", 93: "fchown", 94: "lchown", 260: "fchownat"},
    "aarch64": {55: "fchown", 54: "fchownat"},
    "ppc64le": {181: "chown", 95: "fchown", 16: "lchown", 289: "fchownat"},
    "riscv64": {55: "fchown", 54: "fchownat"},
}
