# SPDX-License-Identifier: BSD-3-Clause
"""FUSE programs that look into the container's own mounts, such as fuse-overlayfs: how they are found and started.

The program runs in a copy of our mount namespace that was made before its own mount, so that nothing holds that mount
but the container: when the container ends, the kernel ends the connection, and the program with it.
"""

from __future__ import annotations

import os

from kedge.system import libc
from kedge.system.spawn import replace_process, run_detached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_MESSAGE_LIMIT = 2000


def find_program(name: str) -> str:
    """Where a program is, in PATH or where distributions put it; the empty string when it is nowhere."""
    from kedge.system import programs  # late: most starts need no such program

    return programs.find_program(name, also=_FOLDERS) or ""


def serve_fuse(
    argv: list[str],
    target: str,
    kind: str,
    *,
    files: list[str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Mount FUSE on `target` and let a program (of libfuse 3) serve it; raises OSError with what the program said.

    `files` are all that it sees of this host beside programs; `prepare` is called in its own mount namespace before.
    """
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    errors = libc.create_memory("errors")
    reading, writing = os.pipe2(os.O_CLOEXEC)
    is_ready, say_ready = os.pipe2(os.O_CLOEXEC)
    try:
        run_detached(
            lambda: _become_server(
                [*argv, f"/dev/fd/{device}"], device, errors, files, prepare, pipes=(reading, writing, say_ready)
            )
        )
        os.close(say_ready)
        say_ready = -1
        if not os.read(is_ready, 1):
            raise OSError("its process could not be set up")
        options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        flags = libc.MS_NOSUID | libc.MS_NODEV
        libc.mount(kind, target, f"fuse.{kind}", flags, f"{options},allow_other,default_permissions")
        os.write(writing, b"1")
    finally:
        for file in (device, reading, writing, is_ready, say_ready):
            if file >= 0:
                os.close(file)
    try:
        os.listdir(target)  # waits until the program answers; fails when it has ended
    except OSError:
        libc.unmount(target, libc.MNT_DETACH)
        raise OSError(read_message(errors) or "the program ended without an error message") from None
    finally:
        os.close(errors)


def read_message(errors: int) -> str:
    """What a program said before it ended, on one line."""
    text = os.pread(errors, _MESSAGE_LIMIT, 0).decode(errors="replace")
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def server_environment() -> dict[str, str]:
    """What a server is told: where programs and libraries are, and nothing of the user's keys."""
    known = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LC_ALL", "LANG") if name in os.environ}
    return {"PATH": _FOLDERS, **known}


def keep_only(kept: tuple[int, ...]) -> None:
    """Give the next program these descriptors and its streams: a pipe of the user's that it held would never end."""
    for name in os.listdir("/proc/self/fd"):
        file = int(name)
        if file > 2:
            try:
                os.set_inheritable(file, file in kept)
            except OSError:
                continue  # that of the listing itself


def shield_server() -> None:
    """Keep the programs of a container out of a server's process, whose root is not theirs: the kernel lets nobody
    look into a process that has a capability more. In a user namespace this one means nothing else.
    """
    try:
        libc.keep_capability(libc.CAP_WAKE_ALARM)
    except OSError:
        return  # real root without it: nothing is out of its reach


def detach_streams(errors: int) -> None:
    """Leave the terminal and the pipes of the user, and the signals that are meant for the program in the container.

    libfuse installs its handlers only where a signal is not ignored. The end of the mount is what ends the server.
    """
    import signal  # late: only in the process of a server

    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)
    os.chdir("/")


def _become_server(
    argv: list[str],
    device: int,
    errors: int,
    files: list[str] | None,
    prepare: Callable[[], None] | None,
    *,
    pipes: tuple[int, int, int],
) -> None:
    reading, writing, say_ready = pipes
    libc.unshare(libc.CLONE_NEWNS)
    detach_streams(errors)
    keep_only((device,))
    if prepare is not None:
        prepare()
    os.close(writing)
    os.write(say_ready, b"1")
    if os.read(reading, 1):
        start_server(argv, files, has_namespace=True)


def start_server(argv: list[str], files: list[str] | None, *, has_namespace: bool = False) -> None:
    """Become the program, which sees these files; with None all that this process sees. Says why where it cannot."""
    from kedge.container.fuse_confinement import confine_server, restrict_server  # late: it ends with this process

    try:
        if files is None:
            restrict_server()
        else:
            confine_server(argv[0], files, has_namespace=has_namespace)
        shield_server()
        replace_process(argv[0], argv, server_environment())
    except OSError as problem:
        os.write(2, f"cannot start {argv[0]}: {problem}".encode())
        raise
