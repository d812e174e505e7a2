# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of the system calls that root emulation lets succeed, for all kinds of programs of a machine.

Sources: arch/x86/entry/syscalls/, arch/arm/tools/syscall.tbl, arch/powerpc/kernel/syscalls/ and, for aarch64 and
riscv64, include/uapi/asm-generic/unistd.h of Linux. The list follows what dpkg, rpm, apk, tar and the programs that add
users call. A 32-bit machine has two calls for most of them: one for numbers of 16 bits, one for 32.
"""

from __future__ import annotations

_GENERIC = (55, 54, 143, 144, 145, 146, 147, 149, 151, 152, 159, 91)
# setuid and setgid, setreuid and setregid, setresuid and setresgid, with how many numbers they take
_USERS_OF_32 = {23: 1, 213: 1, 46: 1, 214: 1, 70: 2, 203: 2, 71: 2, 204: 2, 164: 3, 208: 3, 170: 3, 210: 3}
_THIRTY_TWO = (
    *(182, 212, 95, 207, 16, 198),  # chown, fchown, lchown
    *_USERS_OF_32,
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

# What a supervisor answers that knows who is whom (`owner_recorder.py`), for programs of the machine's own kind
_SET = ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups")
_GET = ("getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups")
_OTHERS = ("capget", "kill", "execve", "execveat", "chroot", "prctl", "clone", "rt_sigaction")
_OWNERS = ("fchown", "fchownat")
_MAKING = ("openat", "mknodat", "mkdirat", "symlinkat", "linkat", "unlinkat", "renameat", "renameat2")
_LOOKING = ("newfstatat", "statx", "faccessat", "fchmod", "fchmodat")
_OLD = (
    "chown",
    "lchown",
    "open",
    "creat",
    "mknod",
    "mkdir",
    "symlink",
    "link",
    "unlink",
    "rmdir",
    "rename",
    "stat",
    "lstat",
)
_OLDER = ("access", "chmod", "fork", "vfork")
_LATE = {439: "faccessat2", 435: "clone3", 452: "fchmodat2"}  # the same numbers on all architectures


def _name(names: tuple[str, ...], *numbers: int) -> dict[int, str]:
    return {number: name for number, name in zip(numbers, names, strict=True) if number >= 0}


_GENERIC_NAMES = {
    **_name(_SET, 146, 144, 145, 143, 147, 149, 151, 152, 159),
    **_name(_GET, 174, 175, 176, 177, 148, 150, 158),
    **_name(_OTHERS, 90, 129, 221, 281, 51, 167, 220, 134),
    **_name(_OWNERS, 55, 54),
    **_name(_MAKING, 56, 33, 34, 36, 37, 35, 38, 276),
    **_name(_LOOKING, 79, 291, 48, 52, 53),
    **_LATE,
}
IDENTITY_CALLS = {
    "x86_64": {
        **_name(_SET, 105, 106, 113, 114, 117, 119, 122, 123, 116),
        **_name(_GET, 102, 107, 104, 108, 118, 120, 115),
        **_name(_OTHERS, 125, 62, 59, 322, 161, 157, 56, 13),
        **_name(_OWNERS, 93, 260),
        **_name(_MAKING, 257, 259, 258, 266, 265, 263, 264, 316),
        **_name(_LOOKING, 262, 332, 269, 91, 268),
        **_name(_OLD, 92, 94, 2, 85, 133, 83, 88, 86, 87, 84, 82, 4, 6),
        **_name(_OLDER, 21, 90, 57, 58),
        **_LATE,
    },
    "aarch64": _GENERIC_NAMES,
    "ppc64le": {
        **_name(_SET, 23, 46, 70, 71, 164, 169, 138, 139, 81),
        **_name(_GET, 24, 49, 47, 50, 165, 170, 80),
        **_name(_OTHERS, 183, 37, 11, 362, 61, 171, 120, 173),
        **_name(_OWNERS, 95, 289),
        **_name(_MAKING, 286, 288, 287, 295, 294, 292, 293, 357),
        **_name(_LOOKING, 291, 383, 298, 94, 297),
        **_name(_OLD, 181, 16, 5, 8, 14, 39, 83, 9, 10, 40, 38, 106, 107),
        **_name(_OLDER, 33, 15, 2, 189),
        **_LATE,
    },
    "riscv64": _GENERIC_NAMES,
}
# By which 32-bit programs become somebody else, which nothing emulates: how many numbers they take
REFUSED_CALLS = {"i386": _USERS_OF_32, "arm": _USERS_OF_32}
CAPSET = {"x86_64": 126, "aarch64": 91, "ppc64le": 184, "riscv64": 91}
# struct stat: where the mode, the user, the group and the device's number are, and its size
STATUS_PLACES = {
    "x86_64": (24, 28, 32, 40, 144),
    "aarch64": (16, 24, 28, 32, 128),
    "ppc64le": (24, 28, 32, 40, 144),
    "riscv64": (16, 24, 28, 32, 128),
}
