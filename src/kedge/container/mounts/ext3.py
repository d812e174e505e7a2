# SPDX-License-Identifier: BSD-3-Clause
"""ext3 images: the kernel mounts them for real root, fuse2fs for everybody else.

fuse2fs keeps changes in its memory until it is told to end, so it must outlive a process-id namespace, and end by
itself with the last process of the container. Many builds of it (libfuse 2) insist on mounting themselves. So:

    1. in a mount namespace of their own the programs mount the images (`ExtServers`), outside any process-id namespace
    2. the container's namespace is made as a copy of that one
    3. a process that stayed behind takes the mounts away from the first, and only the container holds them (`adopt`)
"""

from __future__ import annotations

import os

from kedge.container.facts import is_privileged
from kedge.container.fuse_confinement import confine_mounter
from kedge.container.fuse_program import (
    detach_streams,
    find_program,
    keep_only,
    read_message,
    server_environment,
)
from kedge.container.mount_operations import OLD, Fuse2fs
from kedge.system import libc
from kedge.system.spawn import fork_process, replace_process, run_detached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.mount_operations import Operation
    from kedge.errors import KedgeError

_PATIENCE = 30.0  # seconds until a mount must be there; a journal may have to be replayed first
_PAUSE = 0.002
_ENDING = 3.0  # seconds; a server writes its last and gives up its lock after its container has ended
_PLACE = "/.served"  # where a server mounts its image, in the directory that is its root
_F_OFD_SETLK = 37  # fcntl.h: the lock belongs to the open file, which the server inherits


class ExtImage:
    """An ext file system in a file."""

    def __init__(self, path: str, offset: int, size: int, *, writable: bool) -> None:
        self.path = path
        self.offset = offset
        self.size = size
        self.writable = writable


def mount_ext(
    file: str, offset: int, size: int, target: str, *, writable: bool, servers: ExtServers | None = None
) -> None:
    """Put the file system on `target`: from its server, or without one by the kernel; raises OSError or KedgeError."""
    image = ExtImage(file, offset, size, writable=writable)
    if servers is not None:
        servers.bind(image, target)
        return
    from kedge.container.mounts.loop_device import mount_loop  # late: only real root can use loop devices

    _hold_lock(_lock_image(image))
    mount_loop(file, offset, size, target, "ext4", writable=writable)


def needs_servers() -> bool:
    """Whether fuse2fs must do it: the kernel mounts files for real root only, and where it has loop devices."""
    return not (is_privileged() and os.access("/dev/loop-control", os.R_OK | os.W_OK) and _knows_ext())


def serve_images(operations: list[Operation], base: str) -> ExtServers | None:
    """Servers for the ext3 images of a plan, made outside the process-id namespace that ends with the container."""
    if not needs_servers():
        return None
    images: list[ExtImage] = []
    for operation in operations:
        if isinstance(operation, Fuse2fs):
            part = operation.part
            images.append(ExtImage(part.file[len(OLD) :], part.offset, part.size, writable=operation.mode == "rw"))
    return ExtServers(images, base)


class ExtServers:
    """fuse2fs for each image of one container; made before its process-id and mount namespaces."""

    def __init__(self, images: list[ExtImage], base: str) -> None:
        self._base = base  # a directory that may be covered
        self._images = images
        self._mounts: dict[tuple[str, int], int] = {}
        program = _find_server(images)
        locks = [_lock_image(image) for image in images]
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
        libc.mount("kedge", base, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755")
        answers, answering = os.pipe2(os.O_CLOEXEC)
        self._waiting, self._release = os.pipe2(os.O_CLOEXEC)
        run_detached(lambda: self._serve(program, locks, answering))
        os.close(answering)
        self._read_answers(answers)
        os.close(answers)
        for lock in locks:
            os.close(lock)

    def adopt(self) -> None:
        """In the container's mount namespace: take the mounts over, and let them go where they were made."""
        for number, image in enumerate(self._images):
            place = f"{self._base}/{number}{_PLACE}"
            self._mounts[image.path, image.offset] = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        os.close(self._waiting)
        os.close(self._release)  # what the process that stayed behind waits for

    def bind(self, image: ExtImage, target: str) -> None:
        """Let the contents appear on `target`; raises OSError."""
        place = f"/proc/self/fd/{self._mounts[image.path, image.offset]}"
        libc.mount(place, target, "", libc.MS_BIND)

    def close(self) -> None:
        """After the last `bind`."""
        for file in self._mounts.values():
            os.close(file)
        self._mounts = {}

    def _read_answers(self, answers: int) -> None:
        text = b""
        while piece := os.read(answers, 4096):
            text += piece
        if text != b"ready":
            raise _explain_failure(self._images, text.decode(errors="replace"))

    def _serve(self, program: str, locks: list[int], answering: int) -> None:
        """The process that stays behind."""
        os.close(self._release)
        places = []
        for number, image in enumerate(self._images):
            root = f"{self._base}/{number}"
            places.append(root + _PLACE)
            reason = start_server(program, image, root, locks[number])
            if reason:
                os.write(answering, f"{image.path}: {reason}"[:4000].encode())
                break
        else:
            os.write(answering, b"ready")
        os.close(answering)
        os.read(self._waiting, 1)
        for place in places:
            libc.unmount(place, libc.MNT_DETACH)


def start_server(program: str, image: ExtImage, root: str, lock: int) -> str:
    """Start fuse2fs, whose root the directory is, and wait for its mount; returns what went wrong, or nothing."""
    import time  # late: only where an ext3 image is used

    place = root + _PLACE
    os.makedirs(place, 0o755)
    errors = libc.create_memory("errors")
    before = os.stat(place).st_dev
    child = fork_process()
    if child == 0:
        try:
            detach_streams(errors)
            keep_only((lock,))  # held as long as the server lives
            options = choose_options(program, image)
            libc.keep_capability(libc.CAP_SYS_ADMIN)  # it mounts by itself, and is not root
            inside = _PLACE if confine_mounter(program, [image.path, "/dev/fuse"], root) else place
            replace_process(program, [program, "-f", "-o", options, image.path, inside], server_environment())
        finally:
            os._exit(1)
    try:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            try:
                if os.stat(place).st_dev != before:
                    return ""
            except OSError:
                pass  # it was mounted and has ended: the next wait says so
            if os.waitpid(child, os.WNOHANG)[0]:
                return read_message(errors) or "fuse2fs ended without an error message"
            time.sleep(_PAUSE)
        os.kill(child, 9)
        os.waitpid(child, 0)
        return f"fuse2fs did not mount it within {_PATIENCE:g} s"
    finally:
        os.close(errors)


def choose_options(program: str, image: ExtImage) -> str:
    """The mount options that this fuse2fs knows."""
    with open(program, "rb") as file:
        known = file.read()
    # Its own choice is to ask for every attribute every time. Nobody else changes the file system meanwhile.
    seconds = 1 if image.writable else 3600
    options = ["no_default_opts", "kernel_cache", f"attr_timeout={seconds}", f"entry_timeout={seconds}"]
    options += ["fakeroot", "allow_other", "subtype=ext3", "fsname=kedge"]
    if b"libfuse3.so" not in known:
        options += ["use_ino", "big_writes"]  # which version 3 does anyway, and refuses as options
    if not image.writable:
        options += ["ro", "norecovery"] if b"norecovery" in known else ["ro"]
    if image.offset:
        options.append(f"offset={image.offset}")
    return ",".join(options)


def _find_server(images: list[ExtImage]) -> str:
    """fuse2fs, or an error that says how to do without."""
    program = find_program("fuse2fs")
    if not program:
        raise _explain_missing(images[0])
    if any(image.offset for image in images):
        with open(program, "rb") as file:
            if b"offset=" not in file.read():
                raise _explain_old(program, next(image for image in images if image.offset))
    return program


def _lock_image(image: ExtImage) -> int:
    """Open the file under a lock, as Apptainer does: one writer, or readers only. Raises FileProblem when it is taken.

    The server of a container that has just ended is waited for. File systems without locks are used without.
    """
    import fcntl  # late: only where an ext3 image is used
    import struct
    import time

    mode = os.O_RDWR if image.writable else os.O_RDONLY
    try:
        file = os.open(image.path, mode | os.O_CLOEXEC)
    except OSError as problem:
        from kedge.errors import FileProblem  # late: only when something is wrong

        raise FileProblem(f"cannot open the ext3 image {image.path}: {problem.strerror}") from None
    kind = fcntl.F_WRLCK if image.writable else fcntl.F_RDLCK
    end = time.monotonic() + _ENDING
    while True:
        try:
            fcntl.fcntl(file, _F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, image.offset, image.size, 0))
        except (BlockingIOError, PermissionError):
            if time.monotonic() < end:
                time.sleep(_ENDING / 100)
                continue
            os.close(file)
            raise _explain_lock(image) from None
        except OSError:
            pass
        return file


def _hold_lock(file: int) -> None:
    """Keep a lock until the program in the container ends, under a number that programs do not use."""
    import fcntl  # late: only where an ext3 image is used

    kept = fcntl.fcntl(file, fcntl.F_DUPFD, 200)
    os.close(file)
    os.set_inheritable(kept, True)


def _find_users(path: str) -> list[str]:
    """Processes of this machine that have the file in their command lines, as fuse2fs has, in words."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue  # it has ended
        if os.fsencode(path) in words[1:] and int(name) != os.getpid():
            found.append(f"process {name} ({os.path.basename(os.fsdecode(words[0]))})")
    return found


def _knows_ext() -> bool:
    try:
        with open("/proc/filesystems", encoding="ascii") as file:
            return "\text4\n" in file.read()
    except OSError:
        return False


def _explain_lock(image: ExtImage) -> KedgeError:
    from kedge.errors import FileProblem  # late: only when something is wrong

    context = {"used by": ", ".join(_find_users(image.path)) or "a process on another node, or not visible here"}
    if image.writable:
        message = f"{image.path} is in use: an ext3 image is writable only while no other container uses it"
        hint = f"wait for the other container to end, use '--overlay {image.path}:ro' in all containers, or use a copy"
    else:
        message = f"{image.path} is in use by a container that writes to it"
        hint = f"wait for that container to end, or use '--overlay {image.path}:ro' there as well"
    return FileProblem(message, context=context, hint=hint)


def _explain_missing(image: ExtImage) -> KedgeError:
    from kedge.errors import ProgramMissing  # late: only when something is wrong

    return ProgramMissing(
        f"cannot mount the ext3 image {image.path}: fuse2fs is not installed",
        hint="ask for the package fuse2fs (Debian, Ubuntu) or e2fsprogs with fuse2fs (others), or use a SquashFS "
        "image or a directory as overlay",
    )


def _explain_old(program: str, image: ExtImage) -> KedgeError:
    from kedge.errors import ProgramMissing  # late: only when something is wrong

    return ProgramMissing(
        f"{program} is too old for the ext3 file system inside {image.path}: it has no option 'offset'",
        hint="use fuse2fs 1.46.6 or newer, or extract the partition with 'kedge sif dump' and use it as --overlay",
    )


def _explain_failure(images: list[ExtImage], text: str) -> KedgeError:
    from kedge.errors import MountFailed  # late: only when something is wrong

    names = ", ".join(image.path for image in images)
    return MountFailed(
        f"fuse2fs cannot mount {names}",
        context={"fuse2fs": text or "its process could not be set up"},
        hint="check the image with 'e2fsck -f', and your access to /dev/fuse",
    )
