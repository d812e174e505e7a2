# SPDX-License-Identifier: BSD-3-Clause
"""Calls of the kernel and of the C library that Python lacks, by ctypes, with their constants."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    import ctypes as c_types

    def _open_own_library() -> ctypes.CDLL:
        """The C library of this process; its calls keep errno for `get_errno`."""
else:
    # `ctypes` makes thirty types, tries each of them, and imports `struct` and `types`, which costs a start more than
    # its mounts. The part in C, `_ctypes`, does the work. A Python whose `_ctypes` is another gets `ctypes` itself.
    try:
        import _ctypes

        def _make_type(name: str, letter: str) -> type:
            return type(_ctypes._SimpleCData)(name, (_ctypes._SimpleCData,), {"_type_": letter, "__module__": __name__})

        class _Types:
            """The few that are used."""

            Structure, byref, sizeof = _ctypes.Structure, _ctypes.byref, _ctypes.sizeof
            addressof, get_errno = _ctypes.addressof, _ctypes.get_errno
            c_int = _make_type("c_int", "i")
            c_uint = c_uint32 = _make_type("c_uint", "I")
            c_long = _make_type("c_long", "l")
            c_ulong = c_size_t = _make_type("c_ulong", "L")  # the same in all that Linux runs on
            c_uint64 = c_ulong if sizeof(c_ulong) == 8 else _make_type("c_uint64", "Q")

            def __getattr__(self, name: str) -> type:
                """The rare ones are made when they are asked for: each takes as long as a mount."""
                letters = {"c_char": "c", "c_char_p": "z", "c_short": "h", "c_ushort": "H", "c_void_p": "P"}
                if name not in letters:
                    raise AttributeError(f"no type {name!r} is made here")
                made = _make_type(name, letters[name])
                setattr(self, name, made)
                return made

        c_types = _Types()

        class _Function(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
            _restype_ = c_types.c_int

        class _open_own_library:  # noqa: N801 - as the function that it stands for
            """A library whose functions are its attributes, as those of `ctypes.CDLL` are."""

            def __init__(self) -> None:
                self._handle = _ctypes.dlopen(None, 0)

            def __getattr__(self, name: str) -> object:
                function = _Function((name, self))  # AttributeError where the library has none of this name
                setattr(self, name, function)
                return function

        _open_own_library().getpid()  # as good as those of ctypes, or else those
    except (ImportError, AttributeError, TypeError, ValueError):
        import ctypes as c_types

        def _open_own_library() -> c_types.CDLL:
            """The C library of this process; its calls keep errno for `get_errno`."""
            return c_types.CDLL(None, use_errno=True)


# Numbers of the Linux kernel's interface that Python does not name; they keep the kernel's names.
#
# Sources: include/uapi/linux/{mount,sched,prctl,magic,loop}.h. The numbers are the same on all architectures.

# mount(2)
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_UNBINDABLE = 1 << 17
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MS_RELATIME = 1 << 21
MNT_DETACH = 2

# open_tree(2), move_mount(2), Linux 5.2
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOVE_MOUNT_T_SYMLINKS = 0x10

# mount_setattr(2), Linux 5.12
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4

# unshare(2), setns(2)
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEWCGROUP = 0x02000000
NS_GET_PARENT = 0xB702  # ioctl(2)

# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_KEEPCAPS = 8
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2

# capabilities(7)
CAP_CHOWN = 0
CAP_SYS_ADMIN = 21
CAP_WAKE_ALARM = 35

# keyctl(2)
KEYCTL_JOIN_SESSION_KEYRING = 1

# statfs(2): file systems that matter when choosing how to mount
TMPFS_MAGIC = 0x01021994
RAMFS_MAGIC = 0x858458F6
FUSE_SUPER_MAGIC = 0x65735546
NFS_SUPER_MAGIC = 0x6969
LUSTRE_SUPER_MAGIC = 0x0BD00BD0
GPFS_SUPER_MAGIC = 0x47504653
PANFS_SUPER_MAGIC = 0xAAD7AAEA
ECRYPTFS_SUPER_MAGIC = 0xF15F
OVERLAYFS_SUPER_MAGIC = 0x794C7630
SQUASHFS_MAGIC = 0x73717368
BEEGFS_SUPER_MAGIC = 0x19830326
SMB2_SUPER_MAGIC = 0xFE534D42
CIFS_SUPER_MAGIC = 0xFF534D42
V9FS_MAGIC = 0x01021997
AFS_SUPER_MAGIC = 0x5346414F
CEPH_SUPER_MAGIC = 0x00C36400

# ioctl(2) on loop devices
LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LOOP_CLR_FD = 0x4C01
LOOP_SET_FD = 0x4C00
LOOP_SET_STATUS64 = 0x4C04
LO_FLAGS_READ_ONLY = 1
LO_FLAGS_AUTOCLEAR = 4

# of headers that a Python may have been built without
MFD_CLOEXEC = 1
MFD_ALLOW_SEALING = 2
F_ADD_SEALS = 1033
O_TMPFILE = 0o20000000  # with os.O_DIRECTORY


# Calls of the C library that Python does not offer.
#
# It is on the path of every container start: it imports nothing else.

USRQUOTA = 0
GRPQUOTA = 1
_Q_GETQUOTA = 0x800007  # linux/quota.h; answered for ext4, XFS and all others with kernel quotas
_SYS_QUOTACTL_FD = 443  # the same number on all architectures (Linux 5.14)
_M_ARENA_MAX = -8  # malloc.h of glibc
_QIF_BLIMITS = 1
_QIF_SPACE = 2
_SYS_PIVOT_ROOT = {"x86_64": 155, "ppc64le": 203, "s390x": 217}.get(os.uname().machine, 41)  # 41: the generic table
_SYS_SECCOMP = {"x86_64": 317, "ppc64le": 358, "s390x": 348}.get(os.uname().machine, 277)
_SYS_MEMFD_CREATE = {"x86_64": 319, "ppc64le": 360, "s390x": 350}.get(os.uname().machine, 279)
_SYS_OPENAT2 = 437  # the same number on all architectures (Linux 5.6)
_RESOLVE_NO_MAGIC_LINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH, _RESOLVE_IN_ROOT = 0x02, 0x04, 0x08, 0x10
_SYS_MOUNT_SETATTR = 442  # the same number on all architectures (Linux 5.12)
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429  # the same numbers on all architectures (Linux 5.2)
_AT_FDCWD = -100
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: begin, and do not wait
_DESCRIPTOR = 12  # the word of a message that holds it

_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3 of linux/capability.h

_library = _open_own_library()
_ZERO = c_types.c_ulong(0)
_OPENAT2, _SIZE_OF_HOW = c_types.c_long(_SYS_OPENAT2), c_types.c_size_t(24)  # made once: walks open many files
_hows: dict[tuple[int, int], bytes] = {}


def begin_writing(descriptor: int, offset: int, size: int) -> None:
    """Let the kernel write a stretch of a file now, so that the fsync at its end has little to wait for.

    Where the kernel cannot (a pipe, an odd file system), the fsync does all of it.
    """
    if hasattr(_library, "sync_file_range"):
        place, length = c_types.c_uint64(offset), c_types.c_uint64(size)
        _library.sync_file_range(c_types.c_int(descriptor), place, length, c_types.c_uint(_SYNC_FILE_RANGE_WRITE))


class Quota:
    """Bytes used and allowed; a limit of 0 is none."""

    __slots__ = ("limit", "used")

    def __init__(self, used: int, limit: int) -> None:
        self.used = used
        self.limit = limit


def _make_quota_type() -> type[c_types.Structure]:
    """struct if_dqblk of linux/quota.h: limits in blocks of 1 KiB, usage in bytes. Made here: no start asks for it."""

    class _DiskQuota(c_types.Structure):
        _fields_ = (
            ("block_hard_limit", c_types.c_uint64),
            ("block_soft_limit", c_types.c_uint64),
            ("current_space", c_types.c_uint64),
            ("inode_hard_limit", c_types.c_uint64),
            ("inode_soft_limit", c_types.c_uint64),
            ("current_inodes", c_types.c_uint64),
            ("block_time", c_types.c_uint64),
            ("inode_time", c_types.c_uint64),
            ("valid", c_types.c_uint32),
        )

    return _DiskQuota


def get_quota(folder: int, device: str, kind: int, identity: int) -> Quota | None:
    """The disk quota of a user or group on the file system of an open directory; raises OSError where there is none.

    `device` is used on kernels that do not know quotactl_fd.
    """
    answer = _make_quota_type()()
    command = c_types.c_uint((_Q_GETQUOTA << 8) | kind)
    status = _library.syscall(
        c_types.c_long(_SYS_QUOTACTL_FD),
        c_types.c_uint(folder),
        command,
        c_types.c_uint(identity),
        c_types.byref(answer),
    )
    if status != 0 and hasattr(_library, "quotactl"):
        status = _library.quotactl(command, os.fsencode(device), c_types.c_int(identity), c_types.byref(answer))
    _check(status)
    if not answer.valid & _QIF_BLIMITS or not answer.valid & _QIF_SPACE:
        return None
    limit = answer.block_hard_limit or answer.block_soft_limit
    return Quota(answer.current_space, limit << 10)


def limit_arenas(count: int) -> None:
    """Let all threads share `count` arenas of malloc, of which each reserves 128 MiB of addresses; glibc only."""
    if hasattr(_library, "mallopt"):
        _library.mallopt(c_types.c_int(_M_ARENA_MAX), c_types.c_int(count))


def let_interrupt(number: int) -> None:
    """Let a signal interrupt the call that a thread waits in, and do nothing else: Python does not hear of it."""
    import ctypes  # late: few threads are interrupted

    nothing = ctypes.cast(_library.abs, ctypes.c_void_p)  # takes a number, changes nothing
    _library.signal.restype = ctypes.c_void_p
    _library.signal(ctypes.c_int(number), nothing)
    _library.siginterrupt(ctypes.c_int(number), ctypes.c_int(1))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2); raises OSError that names the target."""
    _check(
        _library.mount(
            os.fsencode(source),
            os.fsencode(target),
            os.fsencode(kind) or None,
            c_types.c_ulong(flags),
            os.fsencode(data) or None,
        ),
        target,
    )


def unmount(target: str, flags: int) -> None:
    """umount2(2)."""
    _check(_library.umount2(os.fsencode(target), c_types.c_int(flags)), target)


def copy_mounts(path: str) -> int:
    """open_tree(2): a copy of what is at `path` with all mounts below it, which is in no place yet (Linux 5.2).

    It is gone when the descriptor is closed, unless `place_mounts` was called.
    """
    flags = OPEN_TREE_CLONE | AT_RECURSIVE | os.O_CLOEXEC
    descriptor = _library.syscall(
        c_types.c_long(_SYS_OPEN_TREE),
        c_types.c_int(_AT_FDCWD),
        os.fsencode(path),
        c_types.c_uint(flags),
    )
    if descriptor < 0:
        _check(descriptor, path)
    return int(descriptor)


def place_mounts(copy: int, target: str) -> None:
    """move_mount(2): put what `copy_mounts` made in its place."""
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS
    status = _library.syscall(
        c_types.c_long(_SYS_MOVE_MOUNT),
        c_types.c_int(copy),
        b"",
        c_types.c_int(_AT_FDCWD),
        os.fsencode(target),
        c_types.c_uint(flags),
    )
    _check(status, target)


def set_mount_attributes(copy: int, attributes: int) -> None:
    """mount_setattr(2): add attributes to what `copy_mounts` made, and to all mounts below it (Linux 5.12)."""
    wanted = _pack_words(attributes, 0, 0, 0)  # struct mount_attr of linux/mount.h: set, clear, propagation, userns_fd
    status = _library.syscall(
        c_types.c_long(_SYS_MOUNT_SETATTR),
        c_types.c_int(copy),
        b"",
        c_types.c_uint(AT_RECURSIVE | AT_EMPTY_PATH),
        wanted,
        c_types.c_size_t(len(wanted)),
    )
    _check(status)


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    status = _library.syscall(c_types.c_long(_SYS_PIVOT_ROOT), os.fsencode(new_root), os.fsencode(put_old))
    _check(status, new_root)


def enter_root(path: str) -> None:
    """Let a mount point be the root of this mount namespace, and what was the root be gone."""
    os.chdir(path)
    try:
        pivot_root(".", ".")
        unmount(".", MNT_DETACH)  # the old root lies over the new one now
    except OSError as problem:
        if problem.errno != 22:  # EINVAL
            raise
        # A node whose root is the initial RAM file system cannot pivot away from it.
        mount(path, "/", "", MS_MOVE)
        os.chroot(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_library.unshare(c_types.c_int(flags)))


def join_namespace(descriptor: int, kind: int) -> None:
    """setns(2)."""
    _check(_library.setns(c_types.c_int(descriptor), c_types.c_int(kind)))


def control_process(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _check(_library.prctl(c_types.c_int(option), c_types.c_ulong(value), _ZERO, _ZERO, _ZERO))


def keep_capability(capability: int) -> None:
    """Let the next program have one of this process's capabilities although it is not root: capset(2), prctl(2)."""
    header = (c_types.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (c_types.c_uint32 * 6)()  # effective, permitted, inheritable: of numbers below 32, then of the others
    _check(_library.capget(header, sets))
    sets[2 + 3 * (capability // 32)] |= 1 << capability % 32
    _check(_library.capset(header, sets))
    zero = c_types.c_ulong(0)
    arguments = c_types.c_ulong(PR_CAP_AMBIENT_RAISE), c_types.c_ulong(capability), zero, zero
    _check(_library.prctl(c_types.c_int(PR_CAP_AMBIENT), *arguments))


def join_session_keyring(call: int) -> None:
    """keyctl(2), whose number differs between machines: a new session keyring, with nothing in it."""
    null = c_types.c_void_p(None)
    number = _library.syscall(c_types.c_long(call), c_types.c_int(KEYCTL_JOIN_SESSION_KEYRING), null, null, null, null)
    _check(min(0, number))


class ShownWords:
    """What /proc shows of this process: its command line, which everybody may read, and its variables.

    Python has read both long ago. Fields of /proc/self/stat: proc(5).
    """

    def __init__(self) -> None:
        areas: list[tuple[int, int]] = []
        try:
            with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib costs more than all of this module
                fields = [int(field) for field in file.read().rpartition(b")")[2].split()[45:49]]
            areas = [(fields[0], fields[1] - fields[0]), (fields[2], fields[3] - fields[2])]
        except OSError:
            pass  # no /proc that shows this process
        self._areas = [(c_types.c_char * size).from_address(start) for start, size in areas]
        self._before = [area.raw for area in self._areas]

    def replace(self, name: bytes) -> None:
        """Let it be a name, and no variables."""
        for number, area in enumerate(self._areas):
            shown = name if number == 0 else b""
            area.raw = shown[: len(area) - 1].ljust(len(area), b"\0")

    def restore(self) -> None:
        """Restore what was set before."""
        for area, before in zip(self._areas, self._before, strict=True):
            area.raw = before


def _point_to_filter(program: bytes) -> object:
    class FilterProgram(c_types.Structure):
        """struct sock_fprog of linux/filter.h."""

        _fields_ = (("length", c_types.c_ushort), ("filter", c_types.c_char_p))

    return c_types.byref(FilterProgram(len(program) // 8, program))


def filter_calls(program: bytes) -> None:
    """Put a seccomp filter, an array of struct sock_filter, on this process and all its children to come.

    Before Linux 5.16 a filter also turned off speculation, which made programs slower; seccomp(2) can say not to.
    """
    wanted = _point_to_filter(program)
    zero = c_types.c_ulong(0)
    set_filter, allow_speculation = c_types.c_uint(1), c_types.c_uint(4)  # SECCOMP_FILTER_FLAG_SPEC_ALLOW, Linux 4.17
    if _library.syscall(c_types.c_long(_SYS_SECCOMP), set_filter, allow_speculation, wanted) != 0:
        mode = c_types.c_ulong(2)  # SECCOMP_MODE_FILTER
        _check(_library.prctl(c_types.c_int(PR_SET_SECCOMP), mode, wanted, zero, zero))


def filter_calls_with_notices(program: bytes) -> int:
    """Set a filter that leaves some calls to another process, which answers them at the file returned here.

    Raises OSError before Linux 5.0, or where a filter with notices is there already.
    """
    wanted = _point_to_filter(program)
    file = -1
    for more in (32, 0):  # SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19): a signal does not end a call halfway
        flags = c_types.c_uint(8 | 4 | more)  # SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_SPEC_ALLOW
        file = _library.syscall(c_types.c_long(_SYS_SECCOMP), c_types.c_uint(1), flags, wanted)
        if file >= 0:
            return int(file)
    _check(file)
    return int(file)


def _make_message(descriptor: int = 0) -> ctypes.Array[ctypes.c_uint64]:
    """struct msghdr of sys/socket.h in the first seven words, and what it points to: one byte, which an empty message
    would not be, and a control message with one descriptor. Types for these would cost every start.
    """
    words = _make_words()
    place = c_types.addressof(words)
    words[2], words[3] = place + 8 * 7, 1  # struct iovec
    words[4], words[5] = place + 8 * 10, 8 * 3  # struct cmsghdr
    words[7], words[8] = place + 8 * 9, 1  # the byte
    words[10], words[11] = 20, 1 << 32 | 1  # its length; SOL_SOCKET, SCM_RIGHTS: two ints
    words[_DESCRIPTOR] = _to_word(descriptor)
    return words


def _make_words() -> ctypes.Array[ctypes.c_uint64]:
    """Sixteen words for a structure: making types takes longer than the calls that want one."""
    return (c_types.c_uint64 * 16)()


def _to_word(number: int) -> int:
    """A word whose first four bytes are an int."""
    return int.from_bytes(number.to_bytes(4, sys.byteorder) + bytes(4), sys.byteorder)


def _to_ints(word: int) -> tuple[int, int]:
    """The two ints that a word of 64 bits holds."""
    data = word.to_bytes(8, sys.byteorder)
    return int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[4:], sys.byteorder)


def pair_sockets() -> tuple[int, int]:
    """Two sockets that are each other's end, for datagrams."""
    pair = _make_words()
    _check(_library.socketpair(c_types.c_int(1), c_types.c_int(2 | 0o2000000), c_types.c_int(0), pair))
    return _to_ints(pair[0])


def send_descriptor(socket: int, descriptor: int) -> None:
    """Send an open file to the other end of a socket, where `fetch_descriptor` finds it."""
    message = _make_message(descriptor)
    _check(min(0, _library.sendmsg(c_types.c_int(socket), c_types.byref(message), c_types.c_int(0))))


def stow_descriptor(descriptor: int) -> int:
    """Send an open file to ourselves and close it: it stays open, in a socket's queue, where no path leads to it.

    Returns the socket, for `fetch_descriptor`; the file is closed when the socket is.
    """
    sending, receiving = pair_sockets()
    try:
        send_descriptor(sending, descriptor)
    finally:
        os.close(sending)
        os.close(descriptor)
    return receiving


def fetch_descriptor(stowed: int) -> int:
    """A descriptor of the file that was stowed in this socket; it stays there too."""
    message = _make_message()
    flags = 2 | 0x40 | 0x40000000  # MSG_PEEK, MSG_DONTWAIT, MSG_CMSG_CLOEXEC
    _check(min(0, _library.recvmsg(c_types.c_int(stowed), c_types.byref(message), c_types.c_int(flags))))
    return _to_ints(message[_DESCRIPTOR])[0]


def create_memory(name: str, flags: int = MFD_CLOEXEC) -> int:
    """memfd_create(2): an open file in memory. Pythons of conda and uv often lack it: their C library was older."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, flags)
    descriptor = _library.syscall(c_types.c_long(_SYS_MEMFD_CREATE), os.fsencode(name), c_types.c_uint(flags))
    if descriptor < 0:
        _check(descriptor)
    return int(descriptor)


def open_in_root(folder: int, path: str, flags: int) -> int:
    """openat2(2): open a name as if the directory were the root, whatever links and other processes do meanwhile."""
    return _open_resolved(folder, os.fsencode(path), flags, _RESOLVE_IN_ROOT)


def open_beneath(folder: int, path: bytes, flags: int) -> int:
    """openat2(2): open what is at a path below the directory; a symbolic link on the way is an error."""
    return _open_resolved(folder, path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)


def open_without_magic(folder: int, path: bytes, flags: int) -> int:
    """openat2(2): open a name, but not through links of /proc, which lead to other processes' roots and open files."""
    return _open_resolved(folder, path, flags, _RESOLVE_NO_MAGIC_LINKS)


def _open_resolved(folder: int, path: bytes, flags: int, resolve: int) -> int:
    how = _hows.get((flags, resolve))
    if how is None:  # struct open_how of linux/openat2.h: flags, mode, resolve
        how = _hows[flags, resolve] = _pack_words(flags, 0, resolve)
    descriptor = _library.syscall(_OPENAT2, c_types.c_int(folder), path, how, _SIZE_OF_HOW)
    if descriptor < 0:
        _check(descriptor, os.fsdecode(path))
    return int(descriptor)


def read_status(file: int, call: int, options: tuple[int, int] | None = None) -> bytearray:
    """What newfstatat(2) writes of an open file or, with flags and mask as `options`, statx(2): numbers of `call`."""
    buffer = (c_types.c_uint64 * 32)()
    number, empty = c_types.c_long(call), c_types.c_int(0x1000)  # AT_EMPTY_PATH
    if options is None:
        _check(_library.syscall(number, c_types.c_int(file), b"", buffer, empty))
        return bytearray(buffer)
    flags, mask = c_types.c_int(options[0] | 0x1000), c_types.c_uint(options[1])
    _check(_library.syscall(number, c_types.c_int(file), b"", flags, mask, buffer))
    return bytearray(buffer)


def raise_loopback() -> None:
    """Let the loopback interface of a new network namespace be up: 127.0.0.1 is there then."""

    class _InterfaceRequest(c_types.Structure):
        """struct ifreq of linux/if.h, as far as flags need it; the kernel reads 40 bytes."""

        _fields_ = (("name", c_types.c_char * 16), ("flags", c_types.c_short), ("rest", c_types.c_char * 22))

    socket = _library.socket(c_types.c_int(2), c_types.c_int(2), c_types.c_int(0))  # AF_INET, SOCK_DGRAM
    if socket < 0:
        _check(socket)
    try:
        request = _InterfaceRequest(b"lo", 0x41)  # IFF_UP | IFF_RUNNING
        _check(_library.ioctl(c_types.c_int(socket), c_types.c_ulong(0x8914), c_types.byref(request)))  # SIOCSIFFLAGS
    finally:
        os.close(socket)


def set_host_name(name: str) -> None:
    """sethostname(2)."""
    raw = os.fsencode(name)
    _check(_library.sethostname(raw, c_types.c_size_t(len(raw))))


def file_system_type(path: str) -> int:
    """The magic number of the file system that holds `path`: f_type of statfs(2)."""
    answer = _make_words()  # struct statfs begins with f_type, a word, and has 120 bytes
    _check(_library.statfs(os.fsencode(path), c_types.byref(answer)), path)
    return answer[0] & 0xFFFFFFFF


def _check(status: int, path: str | None = None) -> None:
    if status != 0:
        problem = c_types.get_errno()
        raise OSError(problem, os.strerror(problem), path)


def _pack_words(*values: int) -> bytes:
    """A structure of words of 64 bits; a type for it would take longer to make than all calls that take one."""
    return b"".join([value.to_bytes(8, sys.byteorder) for value in values])
