# SPDX-License-Identifier: BSD-3-Clause
"""Which tags of an image run on which driver branches, judged cell by cell by the rules that judge one image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.compat.rows import NgcRelease
from kedge.compat.target import Target
from kedge.compat.verdict import NATIVE, UNKNOWN
from kedge.compat.versions import order
from kedge.frozen import as_dict, frozen, replace

if TYPE_CHECKING:
    from kedge.compat.tables import Tables

# The branches that clusters stay on for long; newer ones are those that the tables name.
USUAL_BRANCHES = (470, 525, 535, 550, 570, 580)
_LONGEST_LABEL = 16


@frozen
class ChartColumn:
    """One driver: the newest of its branch that the tables name, or the machine's own."""

    branch: str  # 535
    driver: str  # 535.104.05
    is_host: bool = False


@frozen
class ChartRow:
    """One tag; one outcome for each column."""

    label: str  # the tag, in short
    tag: str
    cuda: str  # empty: not known
    cells: tuple[str, ...]  # outcomes, in the order of the columns
    is_image: bool = False
    skipped: int = 0  # tags between the row above and this one, which are not shown


@frozen
class Chart:
    """Driver × tag of one repository. Without GPUs it tells of drivers alone."""

    image: str  # the repository: nvcr.io/nvidia/pytorch
    columns: tuple[ChartColumn, ...]
    rows: tuple[ChartRow, ...]
    gpus: str = ""  # the GPUs it is judged for; empty: any
    skipped: int = 0  # older tags than the last row's

    def as_dict(self) -> dict[str, object]:
        """All of it, as `--json` prints it."""
        return as_dict(self)


def make_chart(image: str, tables: Tables, target: Target | None, *, tag: str = "", rows: int = 18) -> Chart:
    """The chart of a repository: recent tags, with the image's own and the newest that runs natively on the target."""
    columns = _list_columns(tables, target)
    releases = _list_releases(image, tag, tables)
    own = next((index for index, each in enumerate(releases) if _is_release_of(each, tag, tables)), None)
    machine = _strip_target(target)
    host = next((column for column in columns if column.is_host), None)
    best = None
    if host is not None:
        natives = (i for i, each in enumerate(releases) if _judge_cell(each, machine, host, tables) == NATIVE)
        best = next(natives, None)
    chosen = _choose_rows(len(releases), [index for index in (own, best) if index is not None], rows)
    made, before = [], -1
    for index in chosen:
        release = releases[index]
        cells = tuple(_judge_cell(release, machine, column, tables) for column in columns)
        name = tag if index == own else release.tag
        row = ChartRow(_shorten_tag(name), name, release.cuda, cells, index == own, index - before - 1)
        made.append(row)
        before = index
    return Chart(image, columns, tuple(made), _name_gpus(target), len(releases) - 1 - before)


def _list_columns(tables: Tables, target: Target | None) -> tuple[ChartColumn, ...]:
    drivers = [each.min_driver for each in tables.cuda] + [each.bundled_driver for each in tables.releases]
    newest: dict[int, str] = {}
    for driver in drivers:
        fields = order(driver)
        if len(fields) > 1 and fields > order(newest.get(fields[0], "")):
            newest[fields[0]] = driver
    branches = set(USUAL_BRANCHES) | {branch for branch in newest if branch > USUAL_BRANCHES[-1]}
    host = order(target.driver)[:1] if target else ()
    columns = []
    for branch in sorted(branches | set(host)):
        is_host = (branch,) == host
        driver = target.driver if target and is_host else newest.get(branch, str(branch))
        columns.append(ChartColumn(str(branch), driver, is_host))
    return tuple(columns)


def _list_releases(image: str, tag: str, tables: Tables) -> list[NgcRelease]:
    """One release for each version, newest first; of its flavours (`tf1-py3`, `tf2-py3`) the one that the tag has."""
    flavour = _split_tag(tag)[1]
    groups: dict[tuple[int, ...], NgcRelease] = {}
    for release in tables.list_releases(image):
        version = order(release.tag)
        if not version:
            continue
        held = groups.get(version)
        if held is None or _is_release_of(release, tag, tables):
            groups[version] = release
        elif _split_tag(release.tag)[1] == flavour and not _is_release_of(held, tag, tables):
            groups[version] = release
    return [groups[version] for version in sorted(groups, reverse=True)]


def _is_release_of(release: NgcRelease, tag: str, tables: Tables) -> bool:
    return bool(tag) and (release.tag == tag or tables.find_release(release.image, tag) == release)


def _split_tag(tag: str) -> tuple[str, str]:
    version, _, flavour = tag.partition("-")
    return version, flavour


def _shorten_tag(tag: str) -> str:
    """The tag; where it is long or a pattern of tags, its version."""
    version, flavour = _split_tag(tag)
    return tag if len(tag) <= _LONGEST_LABEL and "{" not in tag or not flavour else f"{version}-…"


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
    """The GPUs alone: neither processor nor MPI is a matter of the driver."""
    if target is None:
        return Target("any machine", "named")
    return Target(target.title, target.origin, target.gpus)


def _name_gpus(target: Target | None) -> str:
    return ", ".join(dict.fromkeys(gpu.name for gpu in target.gpus)) if target else ""


def _judge_cell(release: NgcRelease, machine: Target, column: ChartColumn, tables: Tables) -> str:
    from kedge.compat.judge import judge
    from kedge.compat.read_traits import read_traits

    name = f"{release.image}:{release.tag}"
    traits = read_traits(name, environment={}, labels={}, history=(), tables=tables)
    verdict = judge(traits, replace(machine, driver=column.driver), tables)
    if machine.gpus:
        return verdict.outcome
    # Without a GPU the whole can be no more than not known; the driver's part can.
    of_driver = [each.outcome for each in verdict.judgements if each.subject == "driver" and each.outcome]
    return of_driver[0] if of_driver else UNKNOWN
