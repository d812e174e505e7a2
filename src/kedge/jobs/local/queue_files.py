# SPDX-License-Identifier: BSD-3-Clause
"""The files of the queue: a directory per job, in `active` until all its tasks are over, then in `ended`.

A job's directory has `job.json`, `script`, `environment`, a file per task that began (see task_file), and `cancel` or
`cancel.INDEX` when it is to end. Ids are handed out, and tasks started, under one lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kedge.base.frozen import as_dict, frozen, list_names
from kedge.cluster.job import JobArray
from kedge.cluster.job_state import State
from kedge.errors import FileProblem, JobNotFound
from kedge.system.file_locks import locked
from kedge.system.files import explained, write_atomically
from kedge.system.owned_names import own_name, owner_is_gone
from kedge.system.private_files import make_private, open_own_file, read_own_file, refuse_changed, refuse_intruders
from kedge.system.settings import xdg_directory

# What happened to one task of a job: a file of lines that only grows, one JSON object per event.
#
# Its name says how far the task is: `running`, then `done` or `failed`, with `.INDEX` in arrays. While the task's
# runner lives it holds the file's lock, so a runner that was killed is known by its absence.

_TASK_FILE_LIMIT = 1 << 20  # bytes; the events of a task have a few hundred
RUNNING, DONE, FAILED, CANCEL = "running", "done", "failed", "cancel"


def name_task(kind: str, index: int | None) -> str:
    """`running`, `running.3`."""
    return kind if index is None else f"{kind}.{index}"


@frozen
class TaskHistory:
    """The events so far, as one value; times are seconds since 1970."""

    granted: float | None = None  # it was given its part of the machine
    gpus: tuple[str, ...] = ()
    begun: float | None = None  # its program is about to start, or has
    pid: int = 0
    start: int = 0  # of the process, which tells a reused pid apart
    machine: str = ""
    ending: str = ""  # the state that it will end in, once its processes are gone
    ended: float | None = None
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


def append_event(file: int, **fields: object) -> None:
    """Add an event to the open file, in one write."""
    os.write(file, json.dumps(fields).encode() + b"\n")


def end_task(file: int, path: Path, **fields: object) -> None:
    """Add the last event, and give the file the name of how it went, which a full disk does not prevent."""
    with contextlib.suppress(OSError):
        append_event(file, ended=time.time(), **fields)
    rename_ended(path, str(fields["state"]))


def rename_ended(path: Path, state: str) -> None:
    """From `running.3` to `done.3` or `failed.3`."""
    kind = DONE if state == State.DONE else FAILED
    path.rename(path.with_name(kind + path.name.removeprefix(RUNNING)))


def open_task(path: Path, *, create: bool = False) -> int:
    """Open it for events; with `create` it must not be there yet."""
    if create:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    return open_own_file(path, os.O_RDWR | os.O_APPEND)


def read_task(path: Path) -> TaskHistory:
    """The events of a file; what cannot be read, such as a line that is just being written, is passed over."""
    fields: dict[str, object] = {}
    try:
        data = read_own_file(path, _TASK_FILE_LIMIT)
    except OSError:
        return TaskHistory()
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            fields |= {name: value for name, value in event.items() if name in list_names(TaskHistory)}
    gpus = fields.get("gpus")
    fields["gpus"] = tuple(map(str, gpus)) if isinstance(gpus, list) else ()
    return TaskHistory(**fields)  # type: ignore[arg-type]  # the queue's own files; a wrong type shows as it is


# What a job asks of the queue, as its file `job.json` keeps it.


@frozen
class ResourceAmount:
    """An amount of this machine."""

    cpus: int = 1
    memory: int = 0  # bytes; 0: nothing was asked for, and nothing limits it
    gpus: int = 0

    def fits(self, free: ResourceAmount) -> bool:
        """Whether there is that much free."""
        return self.cpus <= free.cpus and self.memory <= free.memory and self.gpus <= free.gpus

    def minus(self, other: ResourceAmount) -> ResourceAmount:
        """Return what is left after another amount is taken, never less than nothing."""
        return ResourceAmount(
            max(0, self.cpus - other.cpus), max(0, self.memory - other.memory), max(0, self.gpus - other.gpus)
        )


@frozen
class LocalRequest:
    """One job; empty and None mean that nothing was asked for."""

    name: str = "kedge"
    arguments: tuple[str, ...] = ()  # of the script, or the whole command of an interactive job
    is_interactive: bool = False
    directory: str = "/"
    output: str = ""
    error: str = ""  # empty: with the output
    umask: int = 0o022
    user: str = ""
    submitted: float = 0.0
    cpus: int = 1
    memory: int | None = None
    gpus: int = 0
    is_exclusive: bool = False
    time: int | None = None  # seconds
    array: str = ""
    after: tuple[tuple[str, str], ...] = ()  # kind of dependency, and the id: `12` or `12_3`
    begin: float | None = None

    def encode(self) -> bytes:
        """JSON that a person can read."""
        return json.dumps(as_dict(self), indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> LocalRequest:
        """Read what `encode` wrote; raises ValueError for anything else. Fields of a later version are passed over."""
        table = json.loads(data)
        if not isinstance(table, dict):
            raise ValueError("not a table")
        known = {name: table[name] for name in list_names(cls) if name in table}
        known["arguments"] = tuple(map(str, known.get("arguments", ())))
        known["after"] = tuple((str(kind), str(id)) for kind, id in known.get("after", ()))
        return cls(**known)

    @property
    def indices(self) -> list[int | None]:
        """Return the indices of its tasks; one None for a job that is no array."""
        return list(JobArray.parse(self.array).indices) if self.array else [None]

    @property
    def limit(self) -> int:
        """How many of its tasks may run at once."""
        return (JobArray.parse(self.array).limit if self.array else None) or 1 << 30

    def need(self, machine: ResourceAmount) -> ResourceAmount:
        """Return what one task takes; an exclusive one takes all CPUs, so that nothing else begins."""
        return ResourceAmount(machine.cpus if self.is_exclusive else self.cpus, self.memory or 0, self.gpus)


_KINDS = (RUNNING, DONE, FAILED, CANCEL)
_DRAFT = "draft"
_LIMIT = 1 << 24  # bytes of a request, in which arguments are
_FORGET_AFTER = 90 * 86400.0  # seconds for which ended jobs are known
_FORGET_EVERY = 100  # submissions between two looks at that


@frozen
class StoredJob:
    """A job in the queue, and which of its tasks are how far; a job that is no array has one task, None."""

    id: int
    folder: Path
    request: LocalRequest
    tasks: Mapping[str, frozenset[int | None]]  # running, done, failed, cancel

    @property
    def is_cancelled(self) -> bool:
        """Whether the whole of it is to end."""
        return None in self.tasks[CANCEL]

    @property
    def waiting(self) -> list[int | None]:
        """The tasks that have yet to begin, in their order."""
        if self.is_cancelled:
            return []
        gone = frozenset[int | None]().union(*(self.tasks[kind] for kind in _KINDS))
        return [index for index in self.request.indices if index not in gone]

    @property
    def unbegun(self) -> list[int | None]:
        """The tasks that were cancelled before they began."""
        known = self.tasks[RUNNING] | self.tasks[DONE] | self.tasks[FAILED]
        wanted = self.request.indices if self.is_cancelled else sorted(index or 0 for index in self.tasks[CANCEL])
        return [index for index in wanted if index not in known]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs or waits."""
        return not self.tasks[RUNNING] and not self.waiting

    @property
    def is_done(self) -> bool:
        """Whether all of it ended well."""
        return self.is_over and not self.tasks[FAILED] and not self.unbegun

    def path(self, kind: str, index: int | None) -> Path:
        """The file of a task."""
        return self.folder / name_task(kind, index)


class LocalQueue:
    """The queue below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.active = root / "active"
        self.ended = root / "ended"
        self.keeper = root / "keeper"  # locked by the process that looks after waiting jobs
        self.log = root / "log"  # what its processes have to say; nothing, normally

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> LocalQueue:
        """The queue of this user on this machine: homes may be shared by many."""
        chosen = environ.get("KEDGE_LOCAL_QUEUE", "")
        base = xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "local-queue" / os.uname().nodename
        queue = cls(Path(chosen).absolute() if chosen else base)
        queue.refuse_intruders()
        return queue

    def refuse_intruders(self) -> None:
        """A turn starts jobs: those of others, or that others could have changed, must not be started."""
        refuse_intruders(self.root, "KEDGE_LOCAL_QUEUE")
        for folder in (self.active, self.ended):
            refuse_changed(folder)

    @property
    def exists(self) -> bool:
        """Whether a job was ever submitted."""
        return self.active.is_dir()

    def make(self) -> None:
        """Make its directories."""
        for folder in (self.root, self.active, self.ended):
            with explained(folder):
                make_private(folder)
        self.refuse_intruders()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes the queue meanwhile."""
        with locked(self.root / "lock"):
            yield

    @contextlib.contextmanager
    def draft(self, request: LocalRequest) -> Iterator[Path]:
        """A directory for a new job, gone when it was not submitted; `submit` gives it an id."""
        self.make()
        self._remove_abandoned()
        folder = self.root / own_name(_DRAFT)
        with explained(folder):
            folder.mkdir(mode=0o700)
        try:
            write_atomically(folder / "job.json", request.encode(), mode=0o600)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def submit(self, draft: Path) -> int:
        """Put a job into the queue, under the lock; its id. Whoever is killed here leaves a whole job or none."""
        counter = self.root / "last-id"
        last = 0
        with contextlib.suppress(OSError, ValueError):
            last = int(counter.read_bytes())
        id = max(last, 0 if last else max([*self._list_ids(self.active), *self._list_ids(self.ended)], default=0)) + 1
        write_atomically(counter, b"%d\n" % id, mode=0o600)
        with explained(self.active):
            draft.rename(self.active / str(id))
        if id % _FORGET_EVERY == 0:
            self._forget_old()
        return id

    def list_active(self) -> list[StoredJob]:
        """The jobs that are not over, oldest first."""
        return _read_jobs(self.active, self._list_ids(self.active))

    def list_ended(self, since: float = 0.0) -> list[StoredJob]:
        """The jobs whose last task ended after a time, oldest first."""
        recent = [id for id in self._list_ids(self.ended) if _read_time(self.ended / str(id)) >= since]
        return _read_jobs(self.ended, recent)

    def find_job(self, id: int) -> StoredJob | None:
        """A job, wherever it is."""
        return _read_job(self.active, id) or _read_job(self.ended, id) or _read_job(self.active, id)

    def require_job(self, word: str) -> tuple[StoredJob, int | None]:
        """The job and index that `12` or `12_3` means; raises JobNotFound."""
        number, _, index = word.partition("_")
        job = self.find_job(int(number)) if is_number(number) else None
        wanted = int(index) if is_number(index) else None
        if job is None or (index and wanted not in job.request.indices):
            raise JobNotFound(f"the local queue has no job '{word}'", hint="'kedge local-queue list --all' lists them")
        return job, wanted

    def retire(self, job: StoredJob) -> None:
        """Move a job that is over to the others, under the lock."""
        with contextlib.suppress(OSError):
            os.utime(job.folder)
            job.folder.rename(self.ended / str(job.id))

    def _list_ids(self, folder: Path) -> list[int]:
        try:
            return [int(name) for name in os.listdir(folder) if is_number(name)]  # noqa: PTH208 - thousands of them
        except OSError:
            return []

    def _forget_old(self) -> None:
        for id in self._list_ids(self.ended):
            if _read_time(self.ended / str(id)) < time.time() - _FORGET_AFTER:
                shutil.rmtree(self.ended / str(id), ignore_errors=True)

    def _remove_abandoned(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.root.iterdir():
                if path.name.startswith(f"{_DRAFT}.") and owner_is_gone(path.name):
                    shutil.rmtree(path, ignore_errors=True)


def is_number(text: str) -> bool:
    """Whether a text is digits as we write them."""
    return text.isascii() and text.isdecimal() and len(text) < 16


def request_cancel(job: StoredJob, index: int | None) -> None:
    """Ask that a job or one task of it ends; its runner sees the file."""
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.close(os.open(job.path(CANCEL, index), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def read_cancel_time(job: StoredJob, index: int | None) -> float | None:
    """When it was cancelled."""
    for each in (index, None):
        found = _read_time(job.path(CANCEL, each))
        if found:
            return found
    return None


def _read_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_jobs(parent: Path, ids: Iterable[int]) -> list[StoredJob]:
    jobs = []
    for id in sorted(ids):
        with contextlib.suppress(FileProblem):  # one damaged file must not stop the others; 'show' says what it is
            job = _read_job(parent, id)
            jobs += [job] if job is not None else []
    return jobs


def _read_job(parent: Path, id: int) -> StoredJob | None:
    """The job in a directory; None when it is not there, or no longer."""
    folder = parent / str(id)
    refuse_changed(folder)
    try:
        names = os.listdir(folder)  # noqa: PTH208 - arrays have thousands
        request = LocalRequest.decode(read_own_file(folder / "job.json", _LIMIT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as problem:
        raise FileProblem(
            f"{folder / 'job.json'} is damaged: {problem}", hint=f"if you need nothing of it: rm -r {folder}"
        ) from None
    tasks: dict[str, set[int | None]] = {kind: set() for kind in _KINDS}
    for name in names:
        kind, dot, index = name.partition(".")
        if kind in tasks and (not dot or is_number(index)):
            tasks[kind].add(int(index) if dot else None)
    return StoredJob(id, folder, request, {kind: frozenset(found) for kind, found in tasks.items()})
