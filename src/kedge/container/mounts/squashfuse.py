# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS mounted by squashfuse: found on the host, started beside the container, gone with it.

The program runs in a mount namespace of its own (`fuse_confinement`), and nothing but the container holds its mount:
when the last process of the container ends, however it ends, the kernel ends the connection, and the program with it.
"""

from __future__ import annotations

import errno
import os

from kedge.container.fuse_confinement import restrict_server
from kedge.container.fuse_program import (
    detach_streams,
    find_program,
    read_message,
    server_environment,
    start_server,
)
from kedge.system import libc
from kedge.system.spawn import fork_process, replace_process, run_detached

_DEVICE = "/dev/fuse"
_NAMES = ("squashfuse_ll", "squashfuse")  # the first has threads, and keeps attributes as long as it is mounted
_BUNDLED = tuple(
    f"{prefix}/libexec/{name}/bin/squashfuse_ll"
    for prefix in ("/usr", "/usr/local")
    for name in ("apptainer", "singularity")
)
_HOUR = 3600
_END = "\0\0"  # of the words for a server
_PATIENCE = 10.0  # seconds until a program that mounts by itself must have done so


class FuseServer:
    """A process that waits to become a FUSE program.

    To be made inside the container's user namespace (the kernel ties the device to it) and before its mount and
    process-id namespaces (which it would keep alive).
    """

    def __init__(self) -> None:
        self._maker = os.getpid()
        self._device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        self._errors = libc.create_memory("errors")
        reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._life, living = os.pipe2(os.O_CLOEXEC)  # ends when the server does: nobody else has the other end
        run_detached(lambda: self._wait(reading, living))
        os.close(reading)
        os.close(living)

    def mount(self, target: str, argv: list[str], kind: str, options: str = "") -> None:
        """Mount FUSE on `target` and let the program of libfuse 3 serve it; raises OSError with what the program said.

        `argv` ends with what comes before the mount point.
        """
        data = f"fd={self._device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
        flags = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_RDONLY
        words = "\0".join([*argv, f"/dev/fd/{self._device}"])
        try:
            libc.mount("kedge", target, f"fuse.{kind}", flags, f"{data},{options}" if options else data)
            os.write(self._writing, (words + _END).encode("utf-8", "surrogateescape"))
            os.close(self._device)  # the server's alone now: when it ends, the mount fails and does not wait
            self._device = -1
            reason = self._look(target)
            if reason:
                libc.unmount(target, libc.MNT_DETACH)
                raise OSError(errno.EIO, read_message(self._errors) or reason)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of a server that is not needed; it ends."""
        for file in (self._device, self._writing, self._errors, self._life):
            if file >= 0:
                os.close(file)
        self._device = self._writing = self._errors = self._life = -1

    def _look(self, target: str) -> str:
        """Wait until the program serves the mount; why it does not, or the empty string."""
        if os.getpid() == self._maker:
            return _describe(_try_root(target))
        # The process that made us has the device as well, so that the mount would wait for ever for a dead server:
        # another process looks, and the first that has news counts.
        import select  # late: only inside a process-id namespace

        news, telling = os.pipe2(os.O_CLOEXEC)
        child = fork_process()
        if child == 0:
            os._exit(_try_root(target))
        os.close(telling)
        waiting = select.poll()
        for file in (news, self._life):
            waiting.register(file, select.POLLIN | select.POLLHUP)
        is_over = any(file == self._life for file, _ in waiting.poll())
        os.close(news)
        if is_over:
            os.kill(child, 9)
        return _describe(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def _wait(self, reading: int, living: int) -> None:
        """In the process itself: hold nothing of the user's, and become the program when its words come."""
        device = self._device
        detach_streams(self._errors)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) not in (device, reading, living):
                _close_quietly(int(name))
        words = b""
        while not words.endswith(_END.encode()):
            piece = os.read(reading, 65536)
            if not piece:
                return
            words += piece
        for file in (device, living):
            os.set_inheritable(file, True)
        argv = words.decode("utf-8", "surrogateescape")[: -len(_END)].split("\0")
        start_server(argv, [argv[-2]])


def _try_root(target: str) -> int:
    """Look at the root of a mount, which waits until the program answers; the error's number or 0."""
    try:
        os.stat(f"{target}/.")
    except OSError as problem:
        return problem.errno or errno.EIO
    return 0


def _describe(number: int) -> str:
    if number < 0 or number in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV):
        return "the program ended without an error message"
    return f"cannot read its root ({os.strerror(number)}): the image is damaged" if number else ""


def _close_quietly(file: int) -> None:
    try:
        os.close(file)
    except OSError:
        return  # that of the listing itself


def shows_owner(program: str) -> bool:
    """Whether squashfuse can show files as ours; else they are root's, whom a user's container does not know."""
    known = _read_program(program)
    return b"uid=%" in known and b"gid=%" in known


def mount_squashfuse(file: str, offset: int, target: str, program: str, server: FuseServer | None) -> None:
    """Put the SquashFS in a file on `target`; raises OSError. Without a server the program mounts by itself."""
    known = _read_program(program)
    argv = squashfuse_words(program, offset, file)
    if server is not None and _is_fuse3(known):
        server.mount(target, argv, "squashfuse")
        return
    if server is not None:
        server.close()
    _mount_inside(argv, target)


def squashfuse_words(program: str, offset: int, file: str) -> list[str]:
    """The command line up to the mount point."""
    options = [f"offset={offset}"] if offset else []
    if shows_owner(program):
        options += [f"uid={os.getuid()}", f"gid={os.getgid()}"]
    if not program.endswith("_ll"):
        options += ["kernel_cache", f"attr_timeout={_HOUR}", f"entry_timeout={_HOUR}", f"negative_timeout={_HOUR}"]
    # not `timeout=`: to squashfuse it means that an idle mount is to go away
    return [program, "-f", *(["-o", ",".join(options)] if options else []), file]


def find_squashfuse(environ: dict[str, str] | None = None) -> tuple[str, bool]:
    """The program, and whether it is one of libfuse 3; an empty string when there is none.

    One of libfuse 3 is preferred, the one that comes with Apptainer as well; KEDGE_SQUASHFUSE says which to take.
    """
    wanted = (os.environ if environ is None else environ).get("KEDGE_SQUASHFUSE", "")
    if wanted:
        path = wanted if "/" in wanted else find_program(wanted)
        return (path, _is_fuse3(_read_program(path))) if os.access(path, os.X_OK) else ("", False)
    older = ""
    for path in (*(find_program(name) for name in _NAMES), *_BUNDLED):
        if not path or not os.access(path, os.X_OK):
            continue
        if _is_fuse3(_read_program(path)):
            return path, True
        older = older or path
    return older, False


def can_use_fuse() -> str:
    """Why squashfuse cannot be used here; the empty string when it can."""
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"{_DEVICE} does not exist"
    except OSError as problem:
        return f"cannot open {_DEVICE}: {problem.strerror}"
    if find_squashfuse()[0]:
        return ""
    chosen = os.environ.get("KEDGE_SQUASHFUSE", "")
    return f"KEDGE_SQUASHFUSE={chosen} is not a program" if chosen else "squashfuse is not installed"


def needs_company(program: str) -> bool:
    """Whether a program ends with the process that started it: one of libfuse 2, which mounts by itself."""
    return not _is_fuse3(_read_program(program))


def _read_program(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4 << 20)
    except OSError:
        return b""


def _is_fuse3(program: bytes) -> bool:
    """Whether a program takes an open device in place of a mount point: those of libfuse 3 do."""
    return b"libfuse3" in program or b"fusermount3" in program


def _mount_inside(argv: list[str], target: str) -> None:
    """Let a program of libfuse 2 mount by itself: inside the container's namespace, and as long as we live."""
    import time  # late: only with an old squashfuse

    errors = libc.create_memory("errors")
    before = os.stat(target).st_dev
    parent = os.getpid()
    child = fork_process()
    if child == 0:
        try:
            libc.control_process(libc.PR_SET_PDEATHSIG, 9)  # it would keep the namespace alive for itself
            detach_streams(errors)
            libc.keep_capability(libc.CAP_SYS_ADMIN)  # to mount, without being root
            restrict_server()
            if os.getppid() == parent:
                replace_process(argv[0], [*argv[:-1], "-o", "allow_other,ro", argv[-1], target], server_environment())
        finally:
            os._exit(1)
    try:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if os.stat(target).st_dev != before:
                return
            if os.waitpid(child, os.WNOHANG)[0]:
                raise OSError(errno.EIO, read_message(errors) or "the program ended without an error message")
            time.sleep(0.002)
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise OSError(errno.ETIMEDOUT, f"{argv[0]} did not mount it within {_PATIENCE:g} s")
    finally:
        os.close(errors)
