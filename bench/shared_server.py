# SPDX-License-Identifier: BSD-3-Clause
"""A shared file system that counts: virtual nodes mount it by FUSE, and one server answers a bounded number a second.

Each node is a mount namespace with a mount of its own, so its caches are its own, as those of a client of NFS or Lustre
are. What a client may remember is remembered (names, attributes, pages), and what goes to a server goes to this one:
a name looked up first, every open and close, every page read first. Nothing can be written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from pathlib import Path

_FORK = get_context("fork")
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _MS_RDONLY, _MS_NODEV, _MS_PRIVATE, _MS_REC, _MNT_DETACH = 0x20000, 1, 4, 1 << 18, 1 << 14, 2

# include/uapi/linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _READLINK, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _DESTROY, _BATCH_FORGET = 25, 26, 27, 28, 29, 36, 38, 42
_SILENT = (_FORGET, _INTERRUPT, _BATCH_FORGET)  # no answer, and no work
_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<6Q10I")
_KEEP_CACHE = 2
_REMEMBERED = 3600  # seconds for names and attributes: longer than a start
_BUFFER = 1 << 20
_REST = 0.1  # seconds

OPERATIONS, BYTES = 0, 1  # what is counted


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of all nodes: how long it took, and what the server did for it."""

    seconds: float
    operations: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request: the file, and what follows the header."""

    path: str
    body: bytes


class _Server:
    """Answers one node's requests; the time of an answer is shared by all nodes."""

    def __init__(self, source: str, counts: SynchronizedArray[int], free: Synchronized[float], pace: float) -> None:
        self.paths = {1: source}
        self.nodes = {source: 1}
        self.files: dict[int, int] = {}
        self.counts, self.free, self.pace = counts, free, pace

    def serve(self, device: int) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = os.read(device, _BUFFER)
            except OSError as problem:
                if problem.errno == errno.ENODEV:
                    return
                if problem.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            if opcode in _SILENT:
                continue
            body, error = self._answer(opcode, node, request[_IN.size :])
            try:
                os.write(device, _OUT.pack(_OUT.size + len(body), -error, unique) + body)
            except OSError as problem:  # whoever asked is gone
                if problem.errno != errno.ENOENT:
                    raise

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[bytes, int]:
        if opcode == _INIT:
            major, minor, ahead, _ = struct.unpack_from("<4I", body)
            return struct.pack("<4IHHIIHHI7I", major, min(minor, 31), ahead, 1, 64, 48, 1 << 17, 1, *(0,) * 10), 0
        answer = self._ANSWERS.get(opcode)
        if answer is None:
            return b"", errno.ENOSYS  # the kernel does not ask again for most of these
        self._work(0)
        try:
            return answer(self, _Asked(self.paths[node], body)), 0
        except OSError as problem:
            return b"", problem.errno or errno.EIO

    def _work(self, count: int) -> None:
        """One operation, or bytes on top of it: wait until the server has come to it."""
        with self.counts.get_lock():
            self.counts[BYTES if count else OPERATIONS] += count or 1
        if not self.pace or count:
            return
        with self.free.get_lock():
            self.free.value = begin = max(self.free.value, time.monotonic()) + self.pace
        time.sleep(max(0.0, begin - time.monotonic()))

    def _pack_attributes(self, path: str) -> bytes:
        found = os.lstat(path)
        times = [divmod(each, 10**9) for each in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
        return _ATTRIBUTES.pack(
            *(found.st_ino, found.st_size, found.st_blocks),
            *(seconds for seconds, _ in times),
            *(rest for _, rest in times),
            *(found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0),
        )

    def _look_up(self, asked: _Asked) -> bytes:
        path = f"{asked.path}/{os.fsdecode(asked.body.rstrip(bytes(1)))}"
        try:
            attributes = self._pack_attributes(path)
        except FileNotFoundError:  # that there is none is remembered, too
            return struct.pack("<4QII", 0, 0, _REMEMBERED, 0, 0, 0) + bytes(_ATTRIBUTES.size)
        number = self.nodes.setdefault(path, len(self.nodes) + 1)
        self.paths[number] = path
        return struct.pack("<4QII", number, 0, _REMEMBERED, _REMEMBERED, 0, 0) + attributes

    def _get_attributes(self, asked: _Asked) -> bytes:
        return struct.pack("<QII", _REMEMBERED, 0, 0) + self._pack_attributes(asked.path)

    def _read_link(self, asked: _Asked) -> bytes:
        return os.fsencode(Path(asked.path).readlink())

    def _open(self, asked: _Asked) -> bytes:
        handle = os.open(asked.path, os.O_RDONLY | os.O_CLOEXEC)
        return struct.pack("<QII", handle, _KEEP_CACHE, 0)

    def _read(self, asked: _Asked) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", asked.body)
        found = os.pread(handle, size, offset)
        self._work(len(found))
        return found

    def _release(self, asked: _Asked) -> bytes:
        os.close(struct.unpack_from("<Q", asked.body)[0])
        return b""

    def _read_directory(self, asked: _Asked) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", asked.body)
        entries, answer = sorted(os.scandir(asked.path), key=lambda each: each.name), b""
        for place, entry in enumerate(entries[offset:], offset + 1):
            name = os.fsencode(entry.name)
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
            record = struct.pack("<QQII", entry.inode(), place, len(name), kind) + name
            record += bytes(-len(record) % 8)
            if len(answer) + len(record) > size:
                break
            answer += record
        return answer

    def _say_size(self, asked: _Asked) -> bytes:
        found = os.statvfs(asked.path)
        return struct.pack(
            "<5Q4I6I", found.f_blocks, 0, 0, found.f_files, 0, found.f_bsize, 255, found.f_frsize, *(0,) * 7
        )

    _ANSWERS: Mapping[int, Callable[[_Server, _Asked], bytes]] = {
        _LOOKUP: _look_up,
        _GETATTR: _get_attributes,
        _READLINK: _read_link,
        _OPEN: _open,
        _OPENDIR: _open,
        _READ: _read,
        _READDIR: _read_directory,
        _RELEASE: _release,
        _RELEASEDIR: _release,
        _STATFS: _say_size,
    }


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """`source` as nodes see it at `target`, from a server of `rate` operations a second; 0: as many as it can."""

    source: Path
    target: Path
    rate: float = 0

    def run(self, nodes: int, rounds: Sequence[int], argv: Callable[[int], Sequence[str]]) -> list[Round]:
        """Nodes with cold caches run `argv(node)` as many times at once as each round says; what each round cost."""
        counts = _FORK.Array("q", 2)
        free = _FORK.Value("d", 0.0)
        begin, end = _FORK.Barrier(nodes + 1), _FORK.Barrier(nodes + 1)
        words = (counts, free, begin, end)
        children = [_FORK.Process(target=self._be_node, args=(argv(node), rounds, *words)) for node in range(nodes)]
        for child in children:
            child.start()
        found = []
        try:
            begin.wait(60)  # all are mounted
            for _ in rounds:
                before, started = list(counts), time.monotonic()
                begin.wait(60)
                end.wait(600)
                seconds = time.monotonic() - started
                after = _wait_for_closes(counts)
                found.append(Round(seconds, after[0] - before[0], after[1] - before[1]))
        finally:
            for child in children:
                child.join(30)
        if any(child.exitcode for child in children):
            sys.exit("a rank failed: see above")
        return found

    def _be_node(self, argv: Sequence[str], rounds: Sequence[int], *shared: object) -> None:
        counts, free, begin, end = shared
        _check(_LIBC.unshare(_CLONE_NEWNS), "unshare")
        _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        # opened before the mount hides it
        source = f"/proc/self/fd/{os.open(self.source, os.O_PATH)}"
        words = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        _mount("shared", str(self.target), "fuse", _MS_RDONLY | _MS_NODEV, words)
        server = os.fork()
        if not server:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            pace = 1 / self.rate if self.rate else 0.0
            _Server(f"{source}/.", counts, free, pace).serve(device)  # type: ignore[arg-type]
            os._exit(0)
        os.close(device)
        status = 0
        try:
            begin.wait(60)  # type: ignore[attr-defined]
            for ranks in rounds:
                begin.wait(60)  # type: ignore[attr-defined]
                started = [subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=self.target) for _ in range(ranks)]
                status |= max(each.wait() for each in started)
                end.wait(600)  # type: ignore[attr-defined]
        finally:
            _LIBC.umount2(os.fsencode(self.target), _MNT_DETACH)
            os.waitpid(server, 0)
        sys.exit(1 if status else 0)


def _wait_for_closes(counts: SynchronizedArray[int]) -> list[int]:
    """The counts once they rest: nobody waits for the answer when a file is closed."""
    before, after = [-1], list(counts)
    while before != after:
        time.sleep(_REST)
        before, after = after, list(counts)
    return after


def _mount(source: str, target: str, kind: str, flags: int, words: str) -> None:
    result = _LIBC.mount(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), words.encode())
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
