# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of clusters: TOML files, the user's before the site's before those that come with kedge."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.cluster.schedulers.facts import SchedulerFacts
from kedge.cluster.site import Queue, Site
from kedge.cluster.sites.schema import QUEUE_KEYS, SITE_KEYS, Key, Unusable
from kedge.errors import FileProblem, SiteProblem
from kedge.system.files import explained
from kedge.system.settings import xdg_directory

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import Any

SHIPPED = Path(__file__).parent / "profiles"
_FILE_LIMIT = 1 << 20  # larger ones are something else
_LONGEST_NAME = 64
_SIGNS = ("hostnames", "variables")
_DEEPEST = 8  # profiles that inherit from one another


@frozen
class ProfileDirectory:
    """A directory with profiles, and whose they are: user, site or shipped."""

    path: Path
    origin: str


@frozen
class SiteSummary:
    """One line of `kedge site list`; a profile that cannot be read says so in `problem`."""

    name: str
    title: str
    scheduler: str
    origin: str
    path: str
    is_retired: bool = False
    problem: str = ""


@frozen
class Sign:
    """By what a site is known: patterns of host names, and of the values of variables."""

    name: str
    hostnames: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def find_folders(environ: Mapping[str, str]) -> tuple[ProfileDirectory, ...]:
    """Where profiles are looked for, the first that has one wins; whether or not the directories exist."""
    named = [Path(each) for each in environ.get("KEDGE_SITES", "").split(":") if each.startswith("/")]
    return (
        ProfileDirectory(user_folder(environ), "user"),
        *(ProfileDirectory(path, "site") for path in (*named, Path("/etc/kedge/sites"))),
        ProfileDirectory(SHIPPED, "shipped"),
    )


def user_folder(environ: Mapping[str, str]) -> Path:
    """Where the user's own profiles are."""
    return xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "sites"


def find_unreadable_settings(scheduler: SchedulerFacts, environ: Mapping[str, str]) -> str:
    """The file that a variable names and nobody can read, where the scheduler's programs wait a minute for it."""
    path = environ.get(scheduler.settings, "") if scheduler.settings_files else ""
    return "" if not path or os.access(path, os.R_OK) else path


def load_site(name: str, folders: Sequence[ProfileDirectory]) -> Site:
    """The site called `name`, or in the file `name` where it is a path; reads that profile and those it inherits."""
    if "/" in name or name.endswith(".toml"):
        path = Path(name)
        check_name(path.stem, where=f"'{name}'")
        return _read_site(path, path.stem, folders)
    check_name(name, where="--site")
    path_found = _find_profile(name, folders)
    if path_found is None:
        from kedge.base.nearest import propose  # late: only for a mistake

        known = sorted({each.stem for each in _list_files(folders)})
        raise SiteProblem(
            f"no site is called '{name}'",
            context={"folders": ", ".join(str(folder.path) for folder in folders)},
            hint=propose(name, known) or "list the sites: kedge site list; write a new profile: kedge site init",
        )
    return _read_site(path_found, name, folders)


def check_name(name: str, *, where: str) -> None:
    """Raise SiteProblem where a name cannot be a site's: it becomes the name of a file."""
    if not _is_name(name):
        raise SiteProblem(
            f"{where}: '{name[:80]}' is not a valid site name", hint="use letters, digits, '-', '_' and '.'"
        )


def _is_name(text: str) -> bool:
    """Letters, digits, `-`, `_` and `.`, with a letter or digit first; a pattern would take longer to compile."""
    bare = text.replace("-", "").replace("_", "").replace(".", "")
    return text.isascii() and bare.isalnum() and text[0].isalnum() and len(text) <= _LONGEST_NAME


def _read_site(path: Path, name: str, folders: Sequence[ProfileDirectory]) -> Site:
    """The site in a file, checked key by key."""
    table = _read_chain(path, name, folders)
    return make_site(table, name, str(path))


def make_site(table: dict[str, Any], name: str, origin: str) -> Site:
    """A site from a table of values that were checked; SiteProblem where the two things are missing that it needs."""
    for key in ("title", "scheduler"):
        if not table.get(key):
            raise SiteProblem(
                f"{origin}: a profile needs '{key}'",
                context={"key": key},
                hint='add it, or inherit a profile that has it: inherits = "generic-slurm"',
            )
    queues = tuple(Queue(**each) for each in table.pop("queues", ()))
    names = [queue.name for queue in queues]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise SiteProblem(f"{origin}: two queues are called '{twice}'", context={"key": "queues"})
    return Site(name=name, queues=queues, origin=origin, **table)


def is_retired(site: Site) -> bool:
    """Whether all of it is switched off: the profile is for documents that still name it."""
    return bool(site.queues) and all(queue.is_retired for queue in site.queues)


def list_sites(folders: Sequence[ProfileDirectory]) -> list[SiteSummary]:
    """Every site by name; of two with one name, the one that `load_site` takes."""
    summaries: dict[str, SiteSummary] = {}
    for folder in folders:
        for path in _list_files((folder,)):
            if path.stem not in summaries:
                summaries[path.stem] = _summarize(path, folder, folders)
    return [summaries[name] for name in sorted(summaries)]


def list_signs(folders: Sequence[ProfileDirectory]) -> list[Sign]:
    """By what each site is known, without reading the rest of its profile: this happens at every start of a job.

    A profile that is broken has no sign; `load_site` reports it.
    """
    signs: dict[str, Sign] = {}
    for path in _list_files(folders):
        if path.stem not in signs:
            signs[path.stem] = _read_sign(path, folders)
    return list(signs.values())


def _read_sign(path: Path, folders: Sequence[ProfileDirectory]) -> Sign:
    name = path.stem
    values: dict[str, Any] = {}
    parent: Path | None = path
    for _ in range(_DEEPEST):
        if parent is None:
            break
        table = _read_sign_lines(parent)
        values = {**table, **values}
        inherited = values.pop("inherits", "")
        if not inherited:
            break
        parent = _find_profile(inherited, folders, behind=parent if inherited == parent.stem else None)
    return Sign(name, **values)


def _read_sign_lines(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_LIMIT).decode()
        known = find_known_table(text)
        table = known if known is not None else parse_toml("\n".join(_pick_sign_lines(text.splitlines())))
        inherited = table.get("inherits", "")
        # patterns that come with kedge were tried when it was made: compiling all of them takes 2 ms
        read = {key: each.read if known is None else each.parse for key, each in SITE_KEYS.items() if key in _SIGNS}
        values = {key: parse(table[key]) for key, parse in read.items() if key in table}
    except (OSError, ValueError, Unusable, RecursionError):  # not UTF-8 and not TOML are ValueErrors
        return {}
    return {**values, "inherits": inherited} if isinstance(inherited, str) and _is_name(inherited) else values


def _pick_sign_lines(lines: Iterable[str]) -> Iterator[str]:
    """`inherits`, `hostnames` with the lines that its list goes on for, and the table `variables`."""
    is_wanted, is_top = False, True
    for line in lines:
        if line.startswith("["):
            is_wanted, is_top = line.startswith("[variables]"), False
        elif is_top and "=" in line and line[:1].isalpha():
            is_wanted = line.partition("=")[0].strip() in ("inherits", "hostnames")
        if is_wanted:
            yield line


def _summarize(path: Path, folder: ProfileDirectory, folders: Sequence[ProfileDirectory]) -> SiteSummary:
    try:
        site = _read_site(path, path.stem, folders)
    except (SiteProblem, FileProblem) as problem:
        return SiteSummary(path.stem, "", "", folder.origin, str(path), problem=problem.message)
    return SiteSummary(
        name=site.name,
        title=site.title,
        scheduler=site.scheduler,
        origin=folder.origin,
        path=str(path),
        is_retired=is_retired(site),
    )


def _list_files(folders: Sequence[ProfileDirectory]) -> Iterator[Path]:
    for folder in folders:
        try:
            paths = sorted(folder.path.iterdir())
        except OSError:  # not there, or not ours to read: then it has nothing for us
            continue
        yield from (path for path in paths if path.suffix == ".toml" and _is_name(path.stem))


def _find_profile(name: str, folders: Sequence[ProfileDirectory], *, behind: Path | None = None) -> Path | None:
    """The first file of that name; with `behind`, the first in a directory after the one that file is in."""
    remaining = list(folders)
    if behind is not None:
        places = [number for number, each in enumerate(folders) if each.path == behind.parent]
        remaining = remaining[places[0] + 1 :] if places else remaining
    return next((path for folder in remaining if _is_file(path := folder.path / f"{name}.toml")), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory that is not ours to read has nothing for us
        return False


def _read_chain(path: Path, name: str, folders: Sequence[ProfileDirectory]) -> dict[str, Any]:
    """The values of a profile over those of the ones it inherits."""
    tables: list[dict[str, Any]] = []
    seen = {path}
    while True:
        table = read_table(path)
        parent = table.pop("inherits", "")
        tables.append(table)
        if not parent:
            break
        # a profile may refine the one that it hides
        inherited = _find_profile(parent, folders, behind=path if parent == name else None)
        if inherited is None or inherited in seen or len(seen) > _DEEPEST:
            why = "no such profile exists" if inherited is None else "that forms a cycle"
            raise SiteProblem(f"{path}: it inherits '{parent}', but {why}", context={"key": "inherits"})
        seen.add(inherited)
        path, name = inherited, parent
    merged: dict[str, Any] = {}
    for table in reversed(tables):
        for key, value in table.items():
            if key in ("environment", "variables", "options"):
                value = tuple({**dict(merged.get(key, ())), **dict(value)}.items())
            merged[key] = value
    return merged


def read_table(path: Path) -> dict[str, Any]:
    """The values of one file, each checked; SiteProblem names file, line, table and key."""
    with explained(path), path.open("rb") as file:
        data = file.read(_FILE_LIMIT + 1)
    if len(data) > _FILE_LIMIT:
        raise SiteProblem(f"{path} is too large for a profile", hint="a profile has some lines of TOML")
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        raise SiteProblem(f"{path} is not UTF-8 text: {problem.reason} at byte {problem.start}") from None
    return parse_profile(text, str(path))


def parse_profile(text: str, where: str) -> dict[str, Any]:
    """The checked values of a profile's text; `queues` is a list of such tables."""
    try:
        raw = parse_toml(text)
    except (ValueError, RecursionError) as problem:
        raise SiteProblem(f"{where} is not TOML: {problem}", hint='a line looks like: title = "My cluster"') from None
    reader = _Reader(text, where)
    inherits = raw.pop("inherits", "")
    queues = raw.pop("queues", None)
    table = reader.read_keys(raw, SITE_KEYS, "", more=("queues", "inherits"))
    if inherits:
        if not isinstance(inherits, str) or not _is_name(inherits):
            raise reader.refuse("", "inherits", "it must be the name of a profile")
        table["inherits"] = inherits
    if queues is not None:
        table["queues"] = reader.read_queues(queues)
    return table


class _Reader:
    """Checks one file; knows its lines only when something is wrong."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def read_keys(
        self, raw: Mapping[str, object], keys: Mapping[str, Key], table: str, more: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The values of one table."""
        values = {}
        for name, value in raw.items():
            key = keys.get(name)
            if key is None:
                from kedge.base.nearest import propose  # late: only for a mistake

                hint = propose(name, [*keys, *more]) or f"the keys are: {', '.join(sorted([*keys, *more]))}"
                raise self.refuse(table, name, "unknown key", hint=hint)
            try:
                values[name] = key.read(value)
            except Unusable as problem:
                raise self.refuse(table, name, f"{str(value)[:80]!r} is not valid: {problem}") from None
        return values

    def read_queues(self, raw: object) -> list[dict[str, Any]]:
        """The tables of [[queues]]."""
        if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
            raise self.refuse("", "queues", "each queue is a table that begins with the line [[queues]]")
        queues = []
        for number, each in enumerate(raw):
            table = f"queues[{number}]"
            values = self.read_keys(each, QUEUE_KEYS, table)
            if not values.get("name"):
                raise self.refuse(table, "name", "a queue needs a name")
            queues.append(values)
        return queues

    def refuse(self, table: str, key: str, why: str, *, hint: str | None = None) -> SiteProblem:
        """The error for one key."""
        line = _find_line(self._text, table, key)
        shown = f"[[queues]] {key}" if table else key
        context = {"file": self._where, "table": table, "key": key, **({"line": str(line)} if line else {})}
        place = f"{self._where} line {line}" if line else self._where
        return SiteProblem(f"{place}: {shown}: {why}", context=context, hint=hint)


def _find_line(text: str, table: str, key: str) -> int | None:
    """The line a key stands on, or that of its table where the key is not there."""
    current, header, queues = "", None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[{1,2}\s*([\w-]+)\s*\]{1,2}", line):
            current = match.group(1)
            if current == "queues":
                current, queues = f"queues[{queues}]", queues + 1
            elif not table and current == key:
                return number
            header = number if current == table else header
        elif current == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return header


# Reads the TOML of a profile. Those that come with kedge were read when it was made: `tomllib` costs a start 12 ms.
#
# profiles.json holds their tables by the size and checksum of their text, so that a changed profile is read anew;
# `make tables` writes it.

KNOWN = Path(__file__).parent / "profiles.json"
_known_tables: dict[str, dict[str, Any]] = {}


def find_known_table(text: str) -> dict[str, Any] | None:
    """The table of a text that kedge comes with; a copy, whose keys are the caller's to remove."""
    if not _known_tables:
        try:
            _known_tables.update(json.loads(KNOWN.read_bytes()))
        except (OSError, ValueError):  # TOML says the same
            _known_tables[""] = {}
    table = _known_tables.get(_name_text(text))
    return None if table is None else dict(table)


def parse_toml(text: str) -> dict[str, Any]:
    """The table of any text; raises ValueError (`tomllib.TOMLDecodeError`) or RecursionError."""
    table = find_known_table(text)
    if table is not None:
        return table
    import tomllib  # late: profiles of other sites alone need it

    return tomllib.loads(text)


def format_known_tables(texts: Iterable[str]) -> str:
    """The text of profiles.json."""
    import tomllib  # late: only `make tables` writes it

    lines = [f"{json.dumps(_name_text(text))}: {json.dumps(tomllib.loads(text))}" for text in texts]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _name_text(text: str) -> str:
    data = text.encode(errors="surrogatepass")
    return f"{len(data)}-{zlib.crc32(data):08x}"
