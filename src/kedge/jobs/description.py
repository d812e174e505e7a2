# SPDX-License-Identifier: BSD-3-Clause
"""kedge.toml: the jobs of a project, in a file beside its code.

`[job]` holds what all jobs of the file share, or the only job there is; `[jobs.NAME]` is one job each; `site` may stand
above them. A job's own values replace the shared ones, except lists and the environment, which add to them (an empty
one removes them). Relative paths are relative to the directory of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen, replace
from kedge.base.nearest import propose
from kedge.base.toml_text import find_lines, write_key, write_list, write_text
from kedge.cluster.job import Job
from kedge.cluster.job_fields import BY_KEY, BY_NAME, FIELDS, JobField, find_meaning
from kedge.cluster.job_rules import check_job, find_problems
from kedge.cluster.job_values import change_job, name_type, read_value, shorten
from kedge.cluster.memory import shorten_memory
from kedge.errors import InvalidJob
from kedge.system.files import explained

FILE_NAME = "kedge.toml"
FILE_LIMIT = 1 << 18  # bytes; a larger one is something else
_TOP_KEYS = ("site", "job", "jobs")
_TABLE_NAME = re.compile(r"(?![0-9]+\Z)\w[\w.-]*")


@frozen
class Description:
    """What a file says: its jobs by name, in the order they stand there."""

    path: Path
    site: str
    jobs: Mapping[str, Job]

    @property
    def folder(self) -> Path:
        """Where the relative paths of its jobs begin."""
        return self.path.parent

    @property
    def names(self) -> tuple[str, ...]:
        """The names to choose from."""
        return tuple(self.jobs)

    def job(self, name: str = "") -> Job:
        """Return one job; without a name the only one. Raises InvalidJob that says what there is."""
        chosen = name or (self.names[0] if len(self.jobs) == 1 else "")
        if chosen in self.jobs:
            return self.jobs[chosen]
        known = ", ".join(self.names)
        what = f"{self.path} has no job '{name}'" if name else f"{self.path} has several jobs: {known}"
        hint = (propose(name, self.names) or f"its jobs are: {known}") if name else "say which one"
        raise InvalidJob(what, context={"file": str(self.path)}, hint=hint)

    def needs(self, name: str) -> tuple[str, ...]:
        """The jobs of this file that a job waits for."""
        return tuple(
            dict.fromkeys(dependency.job for dependency in self.job(name).dependencies if dependency.job in self.jobs)
        )

    def order(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Return these jobs, or all, and those of the file they wait for: each behind what it waits for."""
        ordered: dict[str, None] = {}
        pending = [(name, False) for name in reversed(tuple(names) or self.names)]
        while pending:
            name, is_ready = pending.pop()
            if is_ready:
                ordered[name] = None
            elif name not in ordered:
                pending.append((name, True))
                pending += [(each, False) for each in reversed(self.needs(name)) if each not in ordered]
        return tuple(ordered)


def find_description(directory: Path | str) -> Path:
    """The file of a directory; those above are another project's. Raises InvalidJob that says where it looked."""
    path = Path(directory).absolute() / FILE_NAME
    if not path.exists():
        raise InvalidJob(
            f"there is no {FILE_NAME} in {path.parent}",
            context={"path": str(path)},
            hint="go to the directory that has one, name it with --file, or say with flags what to run",
        )
    return path


def read_description(path: Path | str) -> Description:
    """Read and check a whole file; InvalidJob names the file, line, table and key of what is wrong."""
    path = Path(path)
    with explained(path), path.open("rb") as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise InvalidJob(
            f"{path} is too large for a description of jobs",
            context={"file": str(path)},
            hint=f"{FILE_LIMIT >> 10} KiB are the most; an array runs one job many times",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        raise InvalidJob(
            f"{path} line {line}: it is not UTF-8",
            context={"file": str(path), "line": str(line)},
            hint="save it as UTF-8",
        ) from None
    return parse_description(text, path)


def parse_description(text: str, path: Path) -> Description:
    """Parse the text of a description that stands in `path`."""
    import tomllib  # late: jobs are described by flags, too

    try:
        lines = find_lines(text)
        content = tomllib.loads(text)
    except RecursionError:
        raise InvalidJob(f"{path} is nested too deeply", context={"file": str(path)}, hint=_show_form()) from None
    except ValueError as problem:
        match = re.search(r"at line ([0-9]+)", str(problem))
        context = {"file": str(path)} | ({"line": match[1]} if match else {})
        raise InvalidJob(f"{path} is not TOML: {problem}", context=context, hint=_explain_syntax(text, match)) from None
    return _Reader(path, lines, content).read()


def _show_form() -> str:
    return 'a job looks like: [jobs.train], and below it lines such as image = "pytorch.sif" and time = "2h"'


def _explain_syntax(text: str, match: re.Match[str] | None) -> str:
    """Texts without quotes are the mistake that people make."""
    lines = text.splitlines()
    number = int(match[1]) if match else 0
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    is_short = len(line) < 200  # what is longer takes the search below minutes
    bare = re.fullmatch(r"\s*([\w-]+)\s*=\s*([^\"'\[{\s#][^\"'#]*?)\s*(#.*)?", line) if is_short else None
    if bare:
        return f'text stands in quotes: {bare[1]} = "{bare[2]}"'
    return _show_form()


class _Reader:
    """One file while it is read: knows the line of everything, for errors."""

    def __init__(self, path: Path, lines: Mapping[tuple[str, ...], int], content: dict[str, Any]) -> None:
        self.path = path
        self.lines = lines
        self.content = content

    def read(self) -> Description:
        for key in self.content:
            if key not in _TOP_KEYS:
                self._refuse_top(key)
        site = self.content.get("site", "")
        if not isinstance(site, str) or not site.isprintable():
            self._refuse(("site",), "it must be the name of a site", "'kedge site list' shows them")
        jobs = self._read_jobs()
        self._check_cycles(jobs)
        return Description(self.path, site, jobs)

    def _read_jobs(self) -> dict[str, Job]:
        shared, tables = self._table(("job",)), self._table(("jobs",))
        if not tables:
            if "job" not in self.content:
                raise InvalidJob(f"{self.path} describes no job", context={"file": str(self.path)}, hint=_show_form())
            job = self._make_job(Job(), ("job",), shared)
            return {job.name: job}
        if "name" in shared:
            self._refuse(("job", "name"), "[job] is what several jobs share", "move the name to one of [jobs.NAME]")
        base = change_job(Job(), self._read_table(("job",), shared))
        found = {}
        for name in tables:
            if not _TABLE_NAME.fullmatch(name):
                hint = "use letters, digits, - _ and . (not digits alone, which would be an id); 'name' may be any text"
                self._refuse(("jobs", name), f"{shorten(name)} cannot be the name of a job here", hint)
            table = self._table(("jobs", name))
            found[name] = self._make_job(change_job(base, {"name": name}), ("jobs", name), table)
        return found

    def _table(self, place: tuple[str, ...]) -> dict[str, Any]:
        value: Any = self.content
        for name in place:
            value = value.get(name, {})
        if not isinstance(value, dict):
            kind = "several tables of one name" if isinstance(value, list) else name_type(value)
            is_nameless = place[0] == "jobs" and place[-1] in ("jobs", *BY_KEY)
            header = "jobs.NAME" if is_nameless else _show_table(place)
            self._refuse(place, f"it must be a table, not {kind}", f"write a line [{header}] above the job's keys")
        return value

    def _make_job(self, base: Job, place: tuple[str, ...], table: dict[str, Any]) -> Job:
        job = change_job(base, self._read_table(place, table))
        for problem in find_problems(job):
            key = BY_NAME[problem.field].key
            inherited = ("job", key) if key in self.content.get("job", {}) else place
            self._refuse((*place, key) if key in table else inherited, problem.message, problem.hint, key)
        return job

    def _read_table(self, place: tuple[str, ...], table: dict[str, Any]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for key, value in table.items():
            field = BY_KEY.get(key)
            if field is None:
                self._refuse_key(place, key)
            try:
                found = read_value(field, value)
            except InvalidJob as problem:
                entry = problem.context.get("entry", "")
                where = (*place, key, entry) if (*place, key, entry) in self.lines else (*place, key)
                self._refuse(where, problem.message, problem.hint, key)
            # what a value implies, as gpus = "a100:4" does the type, gives way to what is said
            changes = {**found, **changes, field.name: found[field.name]}
        return changes

    def _refuse(self, place: tuple[str, ...], message: str, hint: str | None, key: str = "") -> NoReturn:
        """Raise for what stands at `place`, or in the nearest table around it that has a line."""
        known = place
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known)
        table = place[: 2 if place[0] == "jobs" else 1] if place[0] in ("job", "jobs") else ()
        key = key or ".".join(place[len(table) :])
        shown = " ".join(each for each in (f"[{_show_table(table)}]" if table else "", key) if each)
        where = f"{self.path} line {line}" if line else str(self.path)
        context = {"file": str(self.path), "line": str(line or ""), "table": _show_table(table), "key": key}
        filled = {name: value for name, value in context.items() if value}
        raise InvalidJob(f"{where}: {shown}: {message}", context=filled, hint=hint)

    def _refuse_top(self, key: str) -> NoReturn:
        field = BY_KEY.get(key) or find_meaning(key)
        hint = f"put '{field.key}' below a line [job] or [jobs.NAME]" if field else propose(key, _TOP_KEYS)
        self._refuse((key,), "unknown key", hint or f"the keys at the top are: {', '.join(_TOP_KEYS)}")

    def _refuse_key(self, place: tuple[str, ...], key: str) -> NoReturn:
        meant = find_meaning(key)
        if place == ("job",) and isinstance(self.content["job"][key], dict) and meant is None:
            hint: str | None = f"a job of its own is [jobs.{write_key(key)}]"
        elif key in _TOP_KEYS:
            hint = f"'{key}' is for the whole file: put it at the top, above every [table]"
        else:
            hint = f"in {FILE_NAME} it is called '{meant.key}'" if meant else propose(key, BY_KEY)
        self._refuse((*place, key), "unknown key", hint or f"the keys are: {', '.join(BY_KEY)}")

    def _check_cycles(self, jobs: Mapping[str, Job]) -> None:
        """Raise for jobs that wait for each other."""
        needs = {
            name: [dependency.job for dependency in job.dependencies if dependency.job in jobs]
            for name, job in jobs.items()
        }
        done: set[str] = set()
        for first in needs:
            trail: dict[str, None] = {}
            pending = [(first, False)]
            while pending:
                name, is_over = pending.pop()
                if is_over:
                    done.add(name)
                    trail.pop(name, None)
                elif name in trail:
                    names = list(trail)
                    circle = " -> ".join([*names[names.index(name) :], name])
                    self._refuse(
                        ("jobs", name, "after"), f"these jobs wait for each other: {circle}", "drop one 'after'"
                    )
                elif name not in done:
                    trail[name] = None
                    pending.append((name, True))
                    pending += [(each, False) for each in needs[name]]


def _show_table(place: tuple[str, ...]) -> str:
    return ".".join(write_key(name) for name in place)


# Writes kedge.toml: the text that `read_description` reads back as the same jobs.


def write_description(jobs: Iterable[Job], *, site: str = "") -> str:
    """The text of a file with these jobs; raises InvalidJob for one that no file can describe."""
    listed = [check_job(job) for job in jobs]
    keys = _choose_keys(listed)
    names = dict(zip([job.name for job in reversed(listed)], reversed(keys), strict=True))
    blocks = [f"site = {write_text(site)}\n"] if site else []
    for key, job in zip(keys, listed, strict=True):
        known = {name: other for name, other in names.items() if name != job.name}  # its own is an earlier one's
        waits = tuple(
            replace(dependency, job=known.get(dependency.job, dependency.job)) for dependency in job.dependencies
        )
        try:
            blocks.append(_write_job(key, replace(job, dependencies=waits)))
        except UnicodeEncodeError:
            raise InvalidJob(
                f"the job '{key}' has bytes in it that are no text, which a file cannot hold",
                hint="rename the file or argument they come from, or give it on the command line",
            ) from None
    return "\n".join(blocks)


def _choose_keys(jobs: Sequence[Job]) -> list[str]:
    """The name of each job's table: its own where a table can have it."""
    own = {job.name for job in jobs}
    waits = {(dependency.job, job.name) for job in jobs for dependency in job.dependencies}
    taken = {waited for waited, name in waits if waited not in own or waited == name}  # elsewhere, and stay there
    keys: list[str] = []
    for job in jobs:
        plain = re.sub(r"[^\w.-]+", "-", job.name.encode(errors="replace").decode()).strip("-.")[:60] or "job"
        plain = f"job-{plain}" if plain.isdecimal() else plain
        key, number = plain, 2
        while key in taken or (key in own and key != job.name):
            key, number = f"{plain}-{number}", number + 1
        taken.add(key)
        keys.append(key)
    return keys


def _write_job(key: str, job: Job) -> str:
    lines = [f"[jobs.{write_key(key)}]"]
    if job.name != key:
        lines.append(f"name = {write_text(job.name)}")
    nothing = Job()
    said = [field for field in FIELDS if getattr(job, field.name) != getattr(nothing, field.name)]
    apart = ("name", "environment")
    lines += [f"{field.key} = {_write_value(field, job)}" for field in said if field.name not in apart]
    if job.environment:
        lines += ["", f"[jobs.{write_key(key)}.environment]"]
        lines += [f"{write_key(name)} = {write_text(value)}" for name, value in job.environment]
    return "\n".join(lines) + "\n"


def _write_value(field: JobField, job: Job) -> str:
    value = getattr(job, field.name)
    if field.kind == "memory":
        return write_text(shorten_memory(value))
    if field.kind == "duration":
        return write_text(shorten_duration(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return write_list([str(each) for each in value])
    return write_text(str(value))
