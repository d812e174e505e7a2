# SPDX-License-Identifier: BSD-3-Clause
"""One container for all ranks that a launcher starts on a node: the first builds it, the others join.

In one user namespace ranks may read each other's memory, which is how MPI copies within a node; one mount serves all.
Who shares is told by a file in memory: its lock is held while the container is built, its lines name who is inside.
"""

from __future__ import annotations

import os

from kedge.base.rank_variables import HYDRA, LAUNCHES, LOCAL_SIZES, OWN_LAUNCH, OWN_PREFIX, PER_TASK
from kedge.container.options import VENDORS
from kedge.container.processes.join_namespaces import join_namespaces
from kedge.image.node_cache import own_directory
from kedge.system import libc
from kedge.system.libc import PR_SET_DUMPABLE
from kedge.system.spawn import parent_of, start_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.container.options import RunOptions

_ATTEMPTS, _PAUSE = 200, 0.005  # seconds: together as long as a start may take between naming itself and its program
_PLACES = ("/dev/shm", "/run/shm", "/tmp")
# What a rank may have for itself: none of it shapes the container.
_OWN_OPTIONS = (
    *("verb", "arguments", "cleanenv", "env", "env_file", "no_env", "no_eval", "keep", "pwd", "no_workdir"),
    *("no_umask", "app", "shell", "command_name", "pull", "pull_words", "dry_run", "json", "verbose", "quiet"),
    *("silent", "debug", "nocolor", "given", "notes", "warnings", "image", "sharens", "force", "shim"),
)


def has_companions(environ: Mapping[str, str]) -> bool:
    """Whether a launcher says that it started several ranks on this node."""
    for name in LOCAL_SIZES:
        if environ.get(name, "").isdecimal():
            return int(environ[name]) > 1
    if environ.get("SLURM_STEP_ID") and environ.get("SLURM_LOCALID"):
        counts = environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")  # such as 4(x2),1
        return any(count.partition("(")[0] not in ("", "1") for count in counts)
    tasks, nodes = environ.get("FLUX_JOB_SIZE", ""), environ.get("FLUX_JOB_NNODES", "")
    return tasks.isdecimal() and nodes.isdecimal() and int(tasks) > int(nodes)


def make_key(options: RunOptions, image: str, environ: Mapping[str, str], cwd: str) -> str:
    """Everything that must be equal for two starts to share a container: the launch, the image and its shape.

    `image` identifies the image's content, not its name.
    """
    shape = [
        f"{name}={value}"
        for name, value in sorted(vars(options).items())
        if shapes_container(name) and value not in (False, "", [], None)
    ]
    prefixes = ("KEDGE_", "APPTAINER_", "SINGULARITY_")  # binds come from variables too
    named = [name for name in sorted(environ) if name.startswith(prefixes) and not name.startswith(OWN_PREFIX)]
    shape += [f"{name}={environ[name]}" for name in named]
    if options.contain:  # a private /dev holds the devices of one rank
        selectors = [name for vendor in VENDORS for name in vendor.selectors]
        shape += [f"{name}={environ[name]}" for name in selectors if name in environ]
    return "\n".join([find_launch(environ), image, cwd, environ.get("HOME", ""), _machine(), *shape])


def shapes_container(option: str) -> bool:
    """Whether an option is about the container, and not about one program in it."""
    return option not in _OWN_OPTIONS


def find_launch(environ: Mapping[str, str]) -> str:
    """What ranks of one launch on this node have in common: its name, or else the process that started them."""
    if not environ.get(HYDRA) or environ.get("PMIX_NAMESPACE") or environ.get(OWN_LAUNCH):
        for names in LAUNCHES:
            if all(environ.get(name) for name in names):
                return " ".join(f"{name}={environ[name]}" for name in names if name not in PER_TASK)
    parent = os.getppid()
    while environ.get(HYDRA) and _is_rank(parent):  # a script around it; the proxy itself is no rank
        parent = parent_of(parent)
    return f"parent {parent} {start_of(parent)}"


def _is_rank(pid: int) -> bool:
    """Whether a process has the variables of a rank."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"\0{HYDRA}=".encode() in b"\0" + file.read()
    except OSError:
        return False


def _machine() -> str:
    """Numbers of processes mean something in one boot and one process-id namespace."""
    file = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 64).decode() + os.readlink("/proc/self/ns/pid")
    finally:
        os.close(file)


class Sharing:
    """One process's part in it: `enter_or_build`, and where that says that there is nothing to enter, `publish`."""

    def __init__(self, *, is_hidden: bool = False) -> None:
        # Whether programs inside could look into this process, as root could. Then it lets nobody look, and who joins
        # waits until it has become its program.
        self._is_hidden = is_hidden
        self.must_fork = False  # the process-id namespace was joined: it begins with the next child
        self.note = ""  # what the builder wanted those who join to know
        self._failed: set[tuple[str, str]] = set()
        self._file = -1
        self._mounts = 0
        self._pid = os.getpid()  # the supervising process's own, also when a child in another namespace publishes
        self._start = start_of(self._pid)

    def enter_or_build(self, key: str) -> bool:
        """True when we are inside now. Else build, then `publish`: until then all others wait."""
        folder = f"{find_private_directory()}/sharing"
        own_directory(folder)
        path = f"{folder}/{make_digest(key)}"
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if self._join_any(file, _lock(file, "LOCK_SH")) or self._join_any(file, _lock(file, "LOCK_EX")):
                os.close(file)
                return True
            if os.fstat(file).st_nlink:
                break
            os.close(file)  # swept away before the lock was ours
        os.ftruncate(file, 0)
        self._file = file
        _sweep(path)
        return False

    def note_mounts(self) -> None:
        """To be called before the program gets namespaces of its own: who supervises it does not go there."""
        if os.getpid() != self._pid:
            self._mounts = _mounts_of("self")

    def publish(self, note: str = "") -> None:
        """The container is built: let the others in. Called just before the program starts; they can read `note`."""
        if self._file < 0:
            return
        self._record(self._file, self._mounts or _mounts_of("self"), note.replace("\n", " "))
        _lock(self._file, "LOCK_UN")  # not by closing alone: forked processes have the file too
        os.close(self._file)
        self._file = -1

    def _join_any(self, file: int, members: list[list[str]]) -> bool:
        """Join the first that lives and lets us; any will do, for the first may have ended."""
        from kedge.errors import InstanceProblem  # late: only with --sharens

        for pid, start, mounts, note in members:
            if self._is_hidden:
                _await_program(int(pid), int(start))
            if not _is_inside(int(pid), int(start), int(mounts)) or (pid, start) in self._failed:
                continue
            if self._is_hidden:  # before the first step inside: root there may look into whoever comes
                libc.control_process(PR_SET_DUMPABLE, 0)
            try:
                self.must_fork = join_namespaces(int(pid), start=int(start))
            except InstanceProblem:
                self._failed.add((pid, start))
                libc.control_process(PR_SET_DUMPABLE, 1)  # who builds instead must be able to write its own maps
                continue
            self.note = note
            self._record(file, int(mounts), note)
            return True
        return False

    def _record(self, file: int, mounts: int, note: str) -> None:
        """Name ourselves as one who is inside; a short line goes into the file whole."""
        libc.control_process(PR_SET_DUMPABLE, 0 if self._is_hidden else 1)
        os.write(file, f"{self._pid} {self._start} {mounts} {note}\n".encode("utf-8", "surrogateescape"))


def _await_program(pid: int, start: int) -> None:
    """Wait until a process that hides itself has become its program, which does not."""
    import time  # late: only with --sharens and --fakeroot

    for _ in range(_ATTEMPTS):
        if _mounts_of(pid) or start_of(pid) != start:
            return
        time.sleep(_PAUSE)


def _is_inside(pid: int, start: int, mounts: int) -> bool:
    """Whether a member lives and has not gone elsewhere: a program may make namespaces of its own."""
    return start_of(pid) == start and mounts in (0, _mounts_of(pid))


def _mounts_of(pid: int | str) -> int:
    """The number of a process's mount namespace; 0 where there is no /proc to ask."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino
    except OSError:
        return 0


def _lock(file: int, how: str) -> list[list[str]]:
    """Wait for the lock, and read who is inside."""
    import fcntl  # late: only with --sharens

    fcntl.flock(file, getattr(fcntl, how))
    return _read_members(file)


def _read_members(file: int) -> list[list[str]]:
    """Number, start time, mount namespace and note of each who named itself."""
    text = os.pread(file, 1 << 20, 0).decode("utf-8", "surrogateescape")
    lines = [line.split(" ", 3) for line in text.split("\n")[:-1]]
    return [line for line in lines if len(line) == 4 and all(field.isdecimal() for field in line[:3])]


def make_digest(key: str) -> str:
    """A name for a file, as long as any other's."""
    try:
        from _blake2 import blake2b  # hashlib loads all of OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def find_private_directory(uid: int | None = None) -> str:
    """A directory in memory that only this user can write: what its files say is believed."""
    uid = os.getuid() if uid is None else uid
    for place in _PLACES:
        folder = f"{place}/kedge-{uid}"
        try:
            return own_directory(folder)
        except OSError:
            continue
    from kedge.errors import FileProblem  # late: only failures need it

    raise FileProblem(
        "kedge needs a private directory in memory, and cannot create one",
        context={"tried": ", ".join(f"{place}/kedge-{uid}" for place in _PLACES)},
        hint="if one of them exists and is not yours, ask its owner to remove it",
    )


def _sweep(own: str) -> None:
    """Remove the files of launches that are over: nobody is left to do it when the last rank ends."""
    folder = os.path.dirname(own)
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        try:
            if path != own:
                _remove_dead(path)
        except OSError:
            continue  # in use, or another does the same


def _remove_dead(path: str) -> None:
    import fcntl  # late: only ranks share

    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if all(start_of(int(pid)) != int(start) for pid, start, _, _ in _read_members(file)):
            os.unlink(path)
    finally:
        os.close(file)
