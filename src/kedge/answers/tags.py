# SPDX-License-Identifier: BSD-3-Clause
"""The tags of an image as people choose among them: what the registry has, joined with what the tables know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.frozen import replace as put
from kedge.base.reference import Reference
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.contents.tag_filters import (
    EndedSeries,
    VersionRange,
    covers,
    is_since,
    list_architectures,
    list_ended,
    read_cuda_range,
    read_since,
)
from kedge.compat.contents.tag_names import ATTACHMENT, TagName, is_newer, read_tag, sort_names
from kedge.compat.judge import judge
from kedge.compat.known_tables import Repository, propose_image
from kedge.compat.registry_traits import read_registry_traits
from kedge.compat.tables.load import Tables
from kedge.compat.target import Target
from kedge.compat.traits import Fact, ImageTraits
from kedge.errors import ImageNotFound, KedgeError, NetworkFailed, RateLimited, UsageError
from kedge.image.sources.resolve import resolve
from kedge.image.workplace import MORE_RETRIES, Workplace

# Marks
DELETED, ENDING, ENDED, JETSON = "deleted", "end of life", "series ended", "Jetson"
_MARKS = {
    DELETED: "deleted: kedge's tables know the tag, but the registry no longer has it",
    ENDING: "end of life: NVIDIA deletes the tags of such lines; keep the SIF and its digest",
    JETSON: "Jetson: for NVIDIA's embedded boards, not for the GPUs of clusters",
}


@frozen
class TagQuery:
    """Which tags are wanted; empty: all."""

    cuda: str = ""  # 12, 12.4, >=12
    architecture: str = ""  # arm64
    since: str = ""  # 24.01
    match: str = ""  # *-py3
    runs_here: bool = False
    limit: int | None = None
    look: bool = False  # read the configs of what is listed


@frozen
class TagRow:
    """One tag; unknown values are empty."""

    tag: str
    released: str = ""  # 2024-03, or a day
    cuda: str = ""
    framework: str = ""
    framework_version: str = ""
    python: str = ""
    system: str = ""
    architectures: tuple[str, ...] = ()
    outcome: str = ""  # of the verdict, where one was asked for
    headline: str = ""
    marks: tuple[str, ...] = ()
    is_looked_at: bool = False  # its config was read

    @property
    def is_there(self) -> bool:
        """Whether a tag can be pulled, as far as is known."""
        return DELETED not in self.marks


@frozen
class TagListing(JsonValue):
    """The tags that were asked for, newest first."""

    json_names = (("rows", "tags"),)

    name: str  # nvcr.io/nvidia/pytorch
    rows: tuple[TagRow, ...]
    total: int  # that fit, whether shown or not
    is_from_registry: bool
    target: str = ""
    notes: tuple[str, ...] = ()


def list_image_tags(
    repository: Repository,
    workplace: Workplace,
    tables: Tables,
    *,
    query: TagQuery,
    target: Target | None = None,
    offline: bool = False,
) -> TagListing:
    """List the tags of a repository; where its registry is out of reach, what the tables know, and a note says so."""
    notes = [repository.note] if repository.note else []
    known = {row.tag: row for row in tables.list_releases(repository.image)}
    there = None if offline else ask_registry(repository, workplace, notes, has_tables=bool(known))
    if offline and not known:
        raise _refuse_unknown(repository, tables)
    if offline:
        notes.append(f"{repository.registry} was not asked: these are the tags that kedge's tables know")
    names = [read_tag(tag, repository.image) for tag in dict.fromkeys([*(there or ()), *known])]
    maker = _RowMaker(repository, tables, target, None if there is None else frozenset(there), names)
    chosen = _filter_names(sort_names(names), query, notes)
    rows = _filter_rows((maker.make(name) for name in chosen), query, notes, has_tables=bool(known))
    if query.runs_here:
        rows = _filter_running([maker.judge(row) for row in rows], target, notes)
    shown = rows if query.limit is None else rows[: query.limit]
    if query.look:
        shown = [row for row in _look(shown, repository, workplace, maker, notes) if _may_have(row, query.architecture)]
    shown = [maker.judge(row) for row in shown]
    notes += maker.list_notes(shown)
    if target is not None and shown:
        notes += [note for note in _list_target_notes(shown, target) if note not in notes]
    title = target.title if target else ""
    return TagListing(
        repository.name,
        rows=tuple(shown),
        total=len(rows),
        is_from_registry=there is not None,
        target=title,
        notes=tuple(notes),
    )


def _refuse_unknown(repository: Repository, tables: Tables) -> ImageNotFound:
    """An empty list would read as if the repository had no tags."""
    return ImageNotFound(
        f"the tables of kedge do not know {repository.name}, and --offline forbids asking {repository.registry}",
        context={"repository": repository.name},
        hint=propose_image(repository.path, tables),
    )


def ask_registry(
    repository: Repository, workplace: Workplace, notes: list[str], *, has_tables: bool
) -> list[str] | None:
    """Return all tags that the registry has; None, with a note, where it gives no answer and the tables do."""
    from kedge.image.registry.client import RegistryClient

    tags = []
    task = workplace.progress.task(f"tags of {repository.name}", None, "tags")
    try:
        with workplace.hurry().open_access(patient=not has_tables) as access:
            for tag in RegistryClient(repository.registry, access).list_tags(repository.path):
                tags.append(tag)
                task.advance(1)
    except (NetworkFailed, RateLimited) as problem:
        if not has_tables:
            if isinstance(problem, NetworkFailed):
                problem.hint = "; ".join(part for part in (problem.hint, MORE_RETRIES) if part)
            raise
        notes.append(f"{problem.message}; kedge's tables are used instead, so some of the tags may be deleted by now")
        return None
    finally:
        task.finish()
    return tags


class _RowMaker:
    """Makes rows of tags, with what the tables and the registry say of each."""

    def __init__(
        self,
        repository: Repository,
        tables: Tables,
        target: Target | None,
        there: frozenset[str] | None,
        names: Sequence[TagName],
    ) -> None:
        self._repository, self.tables, self._target, self._there = repository, tables, target, there
        self._names = {name.text: name for name in names}
        self._traits: dict[str, ImageTraits] = {}
        self._ended: list[EndedSeries] = list_ended(repository.image, names)
        self.architecture = target.architecture if target else ""

    def make(self, name: TagName) -> TagRow:
        """The row of one tag."""
        known = self.tables.find_release(self._repository.image, name.text)
        traits = read_traits(
            f"{self._repository.image}:{name.text}",
            environment={},
            labels={},
            history=(),
            tables=self.tables,
            architecture=self.architecture,
        )
        if name.cuda and not traits.cuda:
            traits = replace(traits, cuda=Fact(name.cuda, "the tag"))
        row = TagRow(
            name.text,
            released=known.release_date if known and known.release_date else name.month,
            architectures=list_architectures(known, name),
            marks=tuple(self._list_marks(name, is_ending=known is not None and known.is_end_of_life)),
        )
        return self.apply(row, replace(traits, architectures=row.architectures))

    def apply(self, row: TagRow, traits: ImageTraits, architectures: tuple[str, ...] = ()) -> TagRow:
        """A row with what these traits tell."""
        self._traits[row.tag] = traits
        return replace(
            row,
            cuda=traits.cuda.value,
            framework=traits.framework.value,
            framework_version=traits.framework_version.value,
            python=traits.python.value,
            system=traits.os.value,
            architectures=architectures or row.architectures,
        )

    def judge(self, row: TagRow) -> TagRow:
        """A row with the verdict, where there is something to judge against."""
        if self._target is None:
            return row
        verdict = judge(self._traits[row.tag], self._target, self.tables)
        return replace(row, outcome=verdict.outcome, headline=verdict.headline)

    def list_notes(self, rows: Iterable[TagRow]) -> list[str]:
        """What the marks of some rows mean, and whether the tables are behind the registry."""
        shown = list(rows)
        marks = {mark for row in shown for mark in row.marks}
        notes = [sentence for mark, sentence in _MARKS.items() if mark in marks]
        names = [self._names[row.tag] for row in shown]
        notes += [series.sentence for series in self._ended if any(covers(series, name) for name in names)]
        newer = self._list_newer()
        if newer:
            notes.append(
                f"{_count(len(newer), 'tag is', 'tags are')} newer than kedge's tables, up to {newer[0]}: "
                "'kedge data update' learns them"
            )
        return notes

    def _list_newer(self) -> list[str]:
        return list_newer(self._repository.image, self._there or (), self.tables)

    def _list_marks(self, name: TagName, *, is_ending: bool) -> list[str]:
        is_gone = self._there is not None and name.text not in self._there
        marks = [DELETED] if is_gone else [ENDING] if is_ending else []
        if any(covers(series, name) for series in self._ended):
            marks.append(ENDED)
        return marks + ([JETSON] if name.is_jetson else [])


def _look(
    rows: list[TagRow], repository: Repository, workplace: Workplace, maker: _RowMaker, notes: list[str]
) -> list[TagRow]:
    """The rows with what their images' configs say."""
    wanted = [row.tag for row in rows if row.is_there]
    looks = read_tag_configs(wanted, repository, workplace, maker.tables, architecture=maker.architecture)
    by_tag = {look.tag: look for look in looks}
    problems = [look.problem for look in looks if look.problem]
    if problems:
        notes.append(f"{_count(len(problems), 'config', 'configs')} could not be read: {problems[0]}")
    made = []
    for row in rows:
        look = by_tag.get(row.tag)
        if look is not None and look.traits is not None:
            row = replace(maker.apply(row, look.traits, look.traits.architectures), is_looked_at=True)
        made.append(row)
    return made


def list_newer(image: str, tags: Iterable[str], tables: Tables) -> list[str]:
    """Return the tags that are newer than all that the tables know of an image; none where they know nothing of it."""
    known = [read_tag(row.tag, image) for row in tables.list_releases(image)]
    if not known:
        return []
    newest = sort_names(known)[0]
    return [name.text for name in sort_names(read_tag(tag, image) for tag in tags) if is_newer(name, newest)]


def _filter_names(names: list[TagName], query: TagQuery, notes: list[str]) -> list[TagName]:
    hidden = sum(name.kind == ATTACHMENT for name in names)
    if hidden:
        notes.append(f"{_count(hidden, 'tag is a signature', 'tags are signatures')} and the like, not shown")
    chosen = [name for name in names if name.kind != ATTACHMENT]
    if query.match:
        chosen = [name for name in chosen if fnmatchcase(name.text, query.match)]
    if query.since:
        since = read_since(query.since)
        answers = [(name, is_since(name, since)) for name in chosen]
        silent = sum(answer is None for _, answer in answers)
        if silent:
            notes.append(f"skipped {_count(silent, 'tag', 'tags')} of unknown age (--since)")
        chosen = [name for name, answer in answers if answer]
    return chosen


def _filter_rows(rows: Iterable[TagRow], query: TagQuery, notes: list[str], *, has_tables: bool) -> list[TagRow]:
    chosen = list(rows)
    if query.cuda:
        chosen = _filter_cuda(chosen, read_cuda_range(query.cuda), notes)
    if query.architecture:
        chosen = [row for row in chosen if _may_have(row, query.architecture)]
        silent = sum(not row.architectures for row in chosen)
        is_sure = has_tables and query.architecture == "amd64"  # all of NVIDIA's have an image for it
        if silent and not query.look and not is_sure:
            which = "the tag is" if silent == 1 else f"{silent} of these tags are"
            notes.append(f"unknown whether {which} also for {query.architecture}; --look asks the registry")
    return chosen


def _may_have(row: TagRow, architecture: str) -> bool:
    return not architecture or not row.architectures or architecture in row.architectures


def _filter_cuda(rows: list[TagRow], wanted: VersionRange, notes: list[str]) -> list[TagRow]:
    answers = [(row, wanted.holds(row.cuda)) for row in rows]
    silent = sum(answer is None for _, answer in answers)
    if silent:
        notes.append(f"skipped {_count(silent, 'tag', 'tags')} whose CUDA is unknown (--cuda)")
    return [row for row, answer in answers if answer]


def _filter_running(rows: list[TagRow], target: Target | None, notes: list[str]) -> list[TagRow]:
    from kedge.compat.verdict import NO, UNKNOWN

    there = [row for row in rows if row.is_there and JETSON not in row.marks]
    silent = sum(row.outcome == UNKNOWN for row in there)
    if silent:
        notes.append(f"skipped {_count(silent, 'tag', 'tags')} for lack of data (--runs-here)")
        notes += _list_target_notes(there, target) if target is not None else []
    return [row for row in there if row.outcome not in (NO, UNKNOWN)]


def _list_target_notes(rows: Iterable[TagRow], target: Target) -> list[str]:
    """What the answers rest on, and what would settle those that are unknown."""
    from kedge.compat.rules.driver_lookup import FIND_DRIVER
    from kedge.compat.verdict import UNKNOWN

    if not any(row.outcome == UNKNOWN for row in rows):
        return list(target.notes)
    if not target.gpus and target.has_gpus is not False:
        return [f"the GPU of {target.title} is unknown: name it with --gpu GPU", *target.notes]
    if target.driver:
        return list(target.notes)
    missing = (
        f"the driver of {target.title} is unknown: {FIND_DRIVER}; 'kedge recommend' with the same options names the "
        f"newest tag for each driver branch"
    )
    return [missing, *(note for note in target.notes if "driver" not in note)]


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


# Looks at several tags of a repository at once: the config of each, and the architectures there are.

_MOST_LOOKS = 100  # two or three requests each


@frozen
class _TagFacts:
    """What one tag's config tells; `problem` where it could not be read."""

    tag: str
    traits: ImageTraits | None = None
    problem: str = ""


def read_tag_configs(
    tags: Sequence[str], repository: Repository, workplace: Workplace, tables: Tables, *, architecture: str = ""
) -> list[_TagFacts]:
    """The config of each tag, read a few at a time; a tag that cannot be read says why, and stops nobody."""
    from kedge.image.registry.client import RegistryClient

    if len(tags) > _MOST_LOOKS:
        raise UsageError(
            f"--look reads up to {_MOST_LOOKS} images, and these are {len(tags)}",
            hint="narrow it: --limit, --since, --match",
        )
    if architecture:
        workplace = replace(workplace, settings=put(workplace.settings, architecture=architecture))
    task = workplace.progress.task(f"configs of {repository.name}", len(tags), "images")
    with workplace.hurry().open_access() as access, workplace.open_store() as store:
        client = RegistryClient(repository.registry, access)

        def look(tag: str) -> _TagFacts:
            reference = Reference.parse(f"docker://{repository.name}:{tag}")
            try:
                resolved = resolve(reference, workplace, store, any_platform=True, client=client)
                return _TagFacts(tag, read_registry_traits(resolved, store, tables))
            except KedgeError as problem:
                return _TagFacts(tag, problem=problem.message)
            finally:
                task.advance(1)

        try:
            with ThreadPoolExecutor(workplace.settings.download_connections) as pool:
                return list(pool.map(look, tags))
        finally:
            task.finish()
