# SPDX-License-Identifier: BSD-3-Clause
"""Which tags of an image run on which driver branches, judged cell by cell by the rules that judge one image."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.versions import major_minor, order
from kedge.compat.contents.read_traits import read_traits
from kedge.compat.judge import judge
from kedge.compat.rules.driver_lookup import find_newest, find_offered_cuda, list_branches
from kedge.compat.tables.load import Tables, normalize_image
from kedge.compat.target import Target
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import NATIVE, UNKNOWN

_LONGEST_LABEL = 16


@frozen
class ChartColumn:
    """One driver: the newest of its branch that the tables name, or the host's own."""

    branch: str  # 535
    driver: str  # 535.104.05
    is_host: bool = False
    cuda: str = ""  # 12.2: what it offers; empty: unknown


@frozen
class ChartRow:
    """One tag; one outcome for each column."""

    label: str  # the tag, in short
    tag: str
    cuda: str  # empty: unknown
    cells: tuple[str, ...]  # outcomes, in the order of the columns
    is_image: bool = False
    skipped: int = 0  # tags between the row above and this one, which are not shown


@frozen
class Chart(JsonValue):
    """Driver × tag of one repository. Without GPUs it tells of drivers alone."""

    image: str  # the repository: nvcr.io/nvidia/pytorch
    columns: tuple[ChartColumn, ...]
    rows: tuple[ChartRow, ...]
    gpus: str = ""  # the GPUs it is judged for; empty: any
    skipped: int = 0  # older tags than the last row's
    unknown: int = 0  # tags that are left out, because the tables do not have their CUDA
    tag: str = ""  # the image's own; no row has it where the tables do not know it


def make_chart(
    image: str,
    tables: Tables,
    target: Target | None,
    *,
    tag: str = "",
    rows: int = 18,
    traits: ImageTraits | None = None,
) -> Chart:
    """The chart of a repository: recent tags, with the image's own and the newest that runs natively on the target.

    The image's own row is judged by its `traits`, where they are given; all others by what the tables have of them.
    """
    columns = _list_columns(tables, target)
    machine = _strip_target(target)
    architecture = (target.architecture if target else "") or (traits.architecture if traits else "")
    listed = _list_entries(image, tag, tables, traits, architecture)
    entries = [entry for entry in listed if entry.is_known or entry.tag == tag]
    own = next((place for place, entry in enumerate(entries) if entry.tag == tag), None)
    best = _find_native(entries, machine, columns, tables)
    chosen = _choose_rows(len(entries), [place for place in (own, best) if place is not None], rows)
    made, before = [], -1
    for place in chosen:
        entry = entries[place]
        facts = _read_entry(entry, tables)
        cells = tuple(_judge_cell(facts, machine, column, tables) for column in columns)
        label = _shorten_tag(entry.tag)
        made.append(
            ChartRow(
                label=label,
                tag=entry.tag,
                cuda=facts.cuda.value,
                cells=cells,
                is_image=place == own,
                skipped=place - before - 1,
            )
        )
        before = place
    older, unknown = len(entries) - 1 - before, len(listed) - len(entries)
    return Chart(
        image=normalize_image(image),
        columns=columns,
        rows=tuple(made),
        gpus=_name_gpus(target),
        skipped=older,
        unknown=unknown,
        tag=tag,
    )


def _list_columns(tables: Tables, target: Target | None) -> tuple[ChartColumn, ...]:
    newest = find_newest(tables)
    host = order(target.driver)[:1] if target else ()
    columns = []
    for branch in sorted({*list_branches(tables), *host}):
        is_host = (branch,) == host
        driver = target.driver if target and is_host else newest.get(branch, str(branch))
        offered = major_minor(target.cuda) if target and is_host else ""
        columns.append(ChartColumn(str(branch), driver, is_host, offered or find_offered_cuda(driver, tables)))
    return tuple(columns)


@frozen
class _Entry:
    """A tag that can have a row; its traits are read when they are needed."""

    name: str
    tag: str
    is_known: bool  # whether the tables have its CUDA, without which all is unknown
    architecture: str = ""  # that it is judged for
    traits: ImageTraits | None = None


def _list_entries(image: str, tag: str, tables: Tables, traits: ImageTraits | None, architecture: str) -> list[_Entry]:
    """One tag for each version, newest first; of its flavours (`tf1-py3`, `tf2-py3`) the one that the image has."""
    flavour = _split_tag(tag)[1]
    groups: dict[tuple[int, ...], tuple[str, bool]] = {}
    for release in tables.list_releases(image):
        version = order(release.tag)
        has_flavour = _split_tag(release.tag)[1] == flavour
        if version and (version not in groups or (has_flavour and groups[version][0] != tag)):
            groups[version] = (release.tag, bool(release.cuda))
    if traits is not None and order(tag):
        groups[order(tag)] = (tag, True)
    name = normalize_image(image)
    ordered = [groups[version] for version in sorted(groups, reverse=True)]
    return [
        _Entry(f"{name}:{row_tag}", row_tag, known, architecture, traits if row_tag == tag else None)
        for row_tag, known in ordered
    ]


def _find_native(
    entries: Sequence[_Entry], machine: Target, columns: Sequence[ChartColumn], tables: Tables
) -> int | None:
    """The place of the newest that runs natively with the host's own driver."""
    host = next((column for column in columns if column.is_host), None)
    if host is None:
        return None
    for place, entry in enumerate(entries):
        if _judge_cell(_read_entry(entry, tables), machine, host, tables) == NATIVE:
            return place
    return None


def _read_entry(entry: _Entry, tables: Tables) -> ImageTraits:
    return entry.traits or read_traits(
        entry.name, environment={}, labels={}, history=(), tables=tables, architecture=entry.architecture
    )


def _split_tag(tag: str) -> tuple[str, str]:
    version, _, flavour = tag.partition("-")
    return version, flavour


def _shorten_tag(tag: str) -> str:
    """The tag; where it is long, its version."""
    version, flavour = _split_tag(tag)
    return tag if len(tag) <= _LONGEST_LABEL or not flavour else f"{version}-…"


def _choose_rows(count: int, wanted: list[int], limit: int) -> list[int]:
    """Places of the rows to show: those that must be, with their neighbours, and then the newest."""
    chosen = {place for place in wanted[:limit] if place < count}
    neighbours = [place + step for step in (-1, 1, -2, 2) for place in wanted]
    for place in [*neighbours, *range(count)]:
        if len(chosen) >= limit:
            break
        if 0 <= place < count:
            chosen.add(place)
    return sorted(chosen)


def _strip_target(target: Target | None) -> Target:
    """The GPUs alone: neither CPU nor MPI is a matter of the driver."""
    if target is None:
        return Target("any machine", "named")
    return Target(target.title, target.origin, target.gpus)


def _name_gpus(target: Target | None) -> str:
    return ", ".join(dict.fromkeys(gpu.name for gpu in target.gpus)) if target else ""


def _judge_cell(traits: ImageTraits, machine: Target, column: ChartColumn, tables: Tables) -> str:
    verdict = judge(traits, replace(machine, driver=column.driver), tables)
    if machine.gpus:
        return verdict.outcome
    # Without a GPU the whole can be no more than unknown; the driver's part can.
    of_driver = [
        judgement.outcome for judgement in verdict.judgements if judgement.subject == "driver" and judgement.outcome
    ]
    return of_driver[0] if of_driver else UNKNOWN
