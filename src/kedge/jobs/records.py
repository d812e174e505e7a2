# SPDX-License-Identifier: BSD-3-Clause
"""The records of submitted jobs: a directory of plain files for each, and a link by the scheduler's id.

    records/KEY/job.json    what was submitted, where and how; written before the scheduler hears of it
    records/KEY/script.sh   the script
    records/KEY/submit.out  what the submit command printed: the id is in it even if kedge was killed meanwhile
    records/KEY/began…      the script adds to it when it begins: `ID HOST TIME`, and the files its output and errors
                            go to, a line each; once more for each time the scheduler puts it back into the queue;
                            .INDEX behind its name in arrays
    records/KEY/ended…      written by the script when it ends: `STATUS TIME`, and the first line of the run that ended
    records/KEY/cancelled…  written by `kedge cancel`
    records/KEY/lost        written when the scheduler was first found not to know the job any more
    records/KEY/final.json  what the scheduler said last, once nothing changes any more
    new/KEY                 a link to a record whose id is not known yet, made before all else
    ids/SITE:ID             the same link once it is; it moves to ended/ once nothing changes any more
    ended/SITE:ID~KEY       a link to the record of a scheduler that has begun to count anew

Every file has one writer or is written whole by a rename, so nothing needs a lock. What is in a record is believed, and
its script is run, so that directories and files of others are refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen, list_defaults, list_names, replace
from kedge.base.patterns import late_pattern
from kedge.cluster.job_state import JobStatus, decode_status
from kedge.cluster.output_pattern import shorten_id
from kedge.cluster.site import Site, expand_path
from kedge.errors import FileProblem, JobNotFound, NoSpace
from kedge.system.files import explain, explained, write_atomically
from kedge.system.private_files import (
    ANY_MODE,
    OTHERS_WRITE,
    make_private,
    read_own_file,
    refuse_changed,
    refuse_intruders,
)
from kedge.system.settings import Settings, xdg_directory

_LIMIT = 1 << 20  # bytes of a file of a record; larger ones are somebody else's
_FINAL_LIMIT = 1 << 26  # the last word has a line for each task of an array
_VERSION = 1
_FIRST_LINE = late_pattern(r"[^\s/]\S* \S+ \d{1,12}")  # what a script writes when it begins


def find_record_root(settings: Settings, site: Site, environ: Mapping[str, str]) -> Path:
    """Where records are: a place that compute nodes see too, because scripts write there how they ended."""
    if settings.job_directory is not None:
        return settings.job_directory
    scratch = expand_path(site.scratch, environ)
    if not site.home_on_nodes and scratch:
        return Path(scratch) / ".kedge" / "jobs"
    return xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "jobs"


@frozen
class Ending:
    """What a script wrote about itself."""

    index: int | None
    id: str = ""
    began: float | None = None
    host: str = ""
    output: str = ""  # the file it writes to, as its node sees it
    error: str = ""
    status: int | None = None  # None: it began and said nothing more
    ended: float | None = None
    attempts: int = 1  # how often it began: a scheduler may put it back into the queue


@frozen
class Draft:
    """What is known before the scheduler is asked."""

    name: str
    site: str
    scheduler: str
    job: Mapping[str, object]  # the description, as JSON takes it
    directory: str
    output: str  # patterns, with {name}, {id} and {index} still in them
    error: str
    submit: Sequence[str]  # the command


@frozen
class Record:
    """One submitted job."""

    key: str
    folder: Path
    id: str  # empty: the submission did not finish
    name: str
    site: str
    scheduler: str
    job: Mapping[str, object]
    directory: str
    output: str
    error: str
    submit: tuple[str, ...]
    submitted: float
    host: str

    @property
    def script(self) -> Path:
        """The script that was submitted."""
        return self.folder / "script.sh"

    @property
    def typed_id(self) -> str:
        """Return the job's id as commands take it anywhere: numbers of the local queue are those of clusters, too."""
        return f"--site {self.site} {self.id}" if self.id and self.scheduler == "local" else self.id

    @property
    def is_array(self) -> bool:
        """Whether the job has several tasks."""
        return bool(self.job.get("array"))

    def read_endings(self) -> list[Ending]:
        """What its scripts wrote, one entry for each task that began."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        found = [_read_ending(self, name) for name in names if name == "began" or name.startswith("began.")]
        return [each for each in found if each is not None]

    def note_cancelled(self, index: int | None, *, undo: bool = False) -> None:
        """Keep in mind that its user ended it, for schedulers that forget; or that this failed."""
        mark = self.folder / ("cancelled" if index is None else f"cancelled.{index}")
        with contextlib.suppress(OSError):
            mark.unlink() if undo else mark.touch()

    def leave_signal(self, index: int | None, name: str) -> bool:
        """Write down which signal its script is to send to the command; False where no script of it listens."""
        names = "signal*" if index is None else f"signal.{index}"
        listening = list(self.folder.glob(names))  # scripts make them
        for path in listening:
            with explained(path):
                path.write_text(f"{name}\n")
        return bool(listening)

    def was_cancelled(self, index: int | None) -> bool:
        """Whether its user ended the job, or this task of it."""
        return any((self.folder / name).exists() for name in ("cancelled", f"cancelled.{index}"))

    def note_lost(self) -> float:
        """Seconds since it was first found to be lost; 0 when that is now."""
        mark = self.folder / "lost"
        try:
            return max(time.time() - mark.stat().st_mtime, 0.0)
        except OSError:
            with contextlib.suppress(OSError):
                mark.touch()
            return 0.0

    def read_final(self) -> list[JobStatus]:
        """The last word about it, or nothing: none either if it was put back into the queue and began once more."""
        if self._has_begun_again():
            return []
        try:
            data = _read(self.folder / "final.json", _FINAL_LIMIT)
            return [decode_status(each) for each in json.loads(data)]
        except (FileProblem, ValueError, KeyError, TypeError, RecursionError):
            return []

    def _has_begun_again(self) -> bool:
        with contextlib.suppress(OSError):
            said = (self.folder / "final.json").stat().st_mtime
            with os.scandir(self.folder) as files:
                return any(entry.name.startswith("began") and entry.stat().st_mtime > said for entry in files)
        return False


class Records:
    """The records of one user, in one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records = root / "records"
        self._new = root / "new"
        self._ids = root / "ids"
        self._ended = root / "ended"
        self.calls = root / "calls"  # of the Executor

    def refuse_intruders(self) -> None:
        """Raise where others could have written what is here, or could put their own in its place."""
        refuse_intruders(self.root, "KEDGE_JOBDIR")
        for each in (self._records, self._new, self._ids, self._ended):
            refuse_changed(each)
        refuse_changed(self.calls, OTHERS_WRITE)  # older versions of kedge left its mode to the umask

    def place(self) -> tuple[str, Path]:
        """A key that nobody has, and the directory it will get; nothing is made yet."""
        now = time.time()
        # the order of the names is the order of submission: parts of a second, and no zone or summer time
        moment = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{int(now % 1 * 1e6):06}"
        key = f"{moment}-{os.urandom(2).hex()}"
        return key, self._records / key

    def create(self, key: str, draft: Draft, script: str) -> Record:
        """Write down what is about to be submitted."""
        fields: dict[str, object] = {
            "version": _VERSION,
            "name": draft.name,
            "site": draft.site,
            "scheduler": draft.scheduler,
            "submitted": time.time(),
            "host": os.uname().nodename,
            "directory": draft.directory,
            "output": draft.output,
            "error": draft.error,
            "submit": list(draft.submit),
            "job": dict(draft.job),
        }
        folder = self._records / key
        try:
            with explained(folder):
                self.prepare()
                (self._new / key).symlink_to(f"../records/{key}")
                folder.mkdir(mode=0o700)
                (folder / "script.sh").write_text(script, errors="surrogateescape")
            write_atomically(folder / "job.json", _encode(fields))
        except (FileProblem, NoSpace) as problem:
            self._remove(key)
            if "reason" not in problem.context:  # a directory that others may write has a remedy of its own
                problem.hint = (
                    "--job-dir DIR or KEDGE_JOBDIR choose another place for records; compute nodes must see it"
                )
            raise
        return _make_record(key, folder, "", fields)

    def prepare(self) -> None:
        """Make the directories, which are the user's alone whatever the umask.

        Who could swap one of them could give the Executor pickles of their own.
        """
        for each in (self.root, self._records, self._new, self._ids, self._ended, self.calls):
            make_private(each)
        self.refuse_intruders()

    def name_id(self, record: Record, id: str) -> Record:
        """Note the scheduler's id. An older record of the same id is of a scheduler that began to count anew."""
        link = self._ids / f"{record.site}:{id}"
        with explained(link):
            for folder in (self._ids, self._ended):
                if self._is_older(record.key, folder / link.name):
                    link = self._ended / f"{link.name}~{record.key}"
            with contextlib.suppress(FileNotFoundError):  # two may name it at once: submit, and who recovers
                (self._new / record.key).rename(link)
        return replace(record, id=id)

    def _is_older(self, key: str, link: Path) -> bool:
        """Whether the link is that of a newer record; that of an older one is kept under a name of its own.

        So its job is still found by its name.
        """
        with contextlib.suppress(OSError):
            other = os.path.basename(os.readlink(link))
            if other > key:
                return True
            if other != key:
                link.rename(self._ended / f"{link.name}~{other}")
        return False

    def list_ids(self, site: str) -> dict[str, str]:
        """Id to key of the jobs of a site whose last word is not known yet, without opening a file for each."""
        return _read_links(self._ids, site)

    def list_ended(self, site: str, since: float = 0.0) -> dict[str, str]:
        """Id to key of those whose last word was heard after `since`."""
        return _read_links(self._ended, site, since)

    def find_sites(self, id: str) -> list[str]:
        """The sites for which a job of this id was submitted: two may share a home."""
        found = {**_read_links(self._ended, ""), **_read_links(self._ids, "")}
        return sorted(name.removesuffix(f":{id}") for name in found if name.endswith(f":{id}"))

    def has_cancelled(self, key: str) -> bool:
        """Whether a user ended this job, or a task of it; opens no file."""
        try:
            return any(name.startswith("cancelled") for name in os.listdir(self._records / key))
        except OSError:
            return False

    def list_new(self) -> list[str]:
        """The keys of records whose id is not known: their submission is under way, or was killed."""
        try:
            return sorted(os.listdir(self._new))
        except OSError:
            return []

    def close(self, record: Record, statuses: Sequence[JobStatus]) -> None:
        """Keep the last word; what cannot be written is looked up again next time."""
        with contextlib.suppress(OSError):
            temporary = record.folder / f".final-{os.getpid()}"
            temporary.write_bytes(b"[\n" + b",\n".join(_encode_status(status) for status in statuses) + b"\n]\n")
            temporary.replace(record.folder / "final.json")
            (self._ids / f"{record.site}:{record.id}").rename(self._ended / f"{record.site}:{record.id}")

    def list_keys(self) -> list[str]:
        """Return all keys, oldest first."""
        try:
            return sorted(os.listdir(self._records))
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise explain(problem, self._records) from problem

    def read(self, key: str, id: str) -> Record:
        """Read one record; `id` is what a link said, or nothing."""
        folder = self._records / key
        refuse_changed(folder, ANY_MODE)
        try:
            fields = json.loads(_read(folder / "job.json"))
            return _make_record(key, folder, id, fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise FileProblem(
                f"{folder / 'job.json'} is damaged: {problem}", hint=f"the script is {folder / 'script.sh'}"
            ) from None

    def find(self, word: str, site: str) -> Record:
        """The record of an id, a key, a name (the newest of that name), or `last`; without a `site` of any."""
        ids = self._list_known(site)
        named = [key for key, id in ids.items() if id == word] or [
            key
            for key, id in ids.items()
            if word.isdecimal() and shorten_id(id) == word  # PBS's 12[].server
        ]
        keys = self.list_keys()
        if named or word in keys:
            key = max(named) if named else word
            return self.read(key, ids.get(key, ""))
        for key in reversed(keys):
            with contextlib.suppress(FileProblem):
                record = self.read(key, ids.get(key, ""))
                if word in (record.name, "last") and site in ("", record.site):
                    return record
        said = "kedge has submitted no job yet" if word == "last" else f"there is no record of a job '{word}'"
        raise JobNotFound(said, hint="list the jobs: kedge jobs")

    def _list_known(self, site: str) -> dict[str, str]:
        """Key to id of all jobs of a site, or of all sites."""
        links = {**_read_links(self._ended, site), **_read_links(self._ids, site)}
        return {key: name if site else name.partition(":")[2] for name, key in links.items()}

    def forget(self, record: Record) -> None:
        """Remove a record; the job itself is not touched."""
        for folder in (self._ids, self._ended):
            with contextlib.suppress(OSError):
                (folder / f"{record.site}:{record.id}").unlink()
        self._remove(record.key)

    def _remove(self, key: str) -> None:
        import shutil  # late: few records are removed

        shutil.rmtree(self._records / key, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self._new / key).unlink()


def _read_links(folder: Path, site: str, since: float = 0.0) -> dict[str, str]:
    """What follows the colon to the key it links to; the time of a link is when it came into its directory."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            where, _, id = entry.name.partition(":")
            if not id or (site and where != site):
                continue
            with contextlib.suppress(OSError):
                key = os.path.basename(os.readlink(entry.path))
                is_recent = not since or entry.stat(follow_symlinks=False).st_ctime >= since
                if is_recent and key not in ("", ".", ".."):
                    found[id if site else entry.name] = key
    return found


def _make_record(key: str, folder: Path, id: str, fields: Mapping[str, object]) -> Record:
    job, submit = fields["job"], fields["submit"]
    if not isinstance(job, dict) or not isinstance(submit, list):
        raise ValueError("'job' is no table, or 'submit' no list")
    texts = {name: str(fields[name]) for name in ("name", "site", "scheduler", "directory", "output", "error", "host")}
    return Record(
        key=key,
        folder=folder,
        id=id,
        job=job,
        submit=tuple(map(str, submit)),
        submitted=float(str(fields["submitted"])),
        **texts,
    )


def _read_ending(record: Record, name: str) -> Ending | None:
    """What the script wrote of its last run; None where all that is there was written by another job."""
    index = name.partition(".")[2]
    runs = [lines for lines in _split_runs(_read_lines(record.folder / name)) if _is_of(record, lines[0].split())]
    if not runs:
        return None
    lines = runs[-1]
    began = lines[0].split()
    ended = " ".join(_read_lines(record.folder / name.replace("began", "ended", 1))).split()
    if not _is_end_of(began, ended):
        ended = []
    return Ending(
        index=int(index) if index.isdecimal() else None,
        id=began[0] if len(began) > 2 else "",
        began=_read_time(began[-1]) if began else None,
        host=began[1] if len(began) > 2 else "",
        output=lines[1] if len(lines) > 1 else "",
        error=lines[2] if len(lines) > 2 else "",
        status=int(ended[0]) if ended and ended[0].isdecimal() else None,
        ended=_read_time(ended[1]) if len(ended) > 1 else None,
        attempts=len(runs),
    )


def _split_runs(lines: Sequence[str]) -> list[list[str]]:
    """The lines of each run; a first line is `ID HOST TIME`, and the others are paths."""
    runs = [list(lines[:1]) or [""]]
    for line in lines[1:]:
        if _FIRST_LINE.fullmatch(line):
            runs.append([])
        runs[-1].append(line)
    return runs


def _is_of(record: Record, began: Sequence[str]) -> bool:
    """Whether a beginning is the record's own job: a user may have submitted its script once more by hand."""
    return len(began) < 3 or not record.id or shorten_id(began[0]) == shorten_id(record.id)


def _is_end_of(began: Sequence[str], ended: Sequence[str]) -> bool:
    """Whether a run has ended; the end of a run before says nothing. Scripts of older versions do not name the run."""
    if len(ended) > 2:
        return list(ended[2:]) == list(began)
    start, end = (_read_time(words[-1]) if words else None for words in (began, ended))
    return not (start and end and end < start)


def _read_lines(path: Path) -> list[str]:
    try:
        return _read(path).decode(errors="surrogateescape").splitlines()
    except FileProblem:
        return []


def _read_time(word: str) -> float | None:
    return float(word) if word.isdecimal() else None


def _read(path: Path, limit: int = _LIMIT) -> bytes:
    with explained(path):
        return read_own_file(path, limit)


def _encode(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _encode_status(status: JobStatus) -> bytes:
    defaults = list_defaults(JobStatus)
    values = ((name, getattr(status, name)) for name in list_names(JobStatus))
    return json.dumps({name: value for name, value in values if value != defaults.get(name)}).encode()
