# SPDX-License-Identifier: BSD-3-Clause
"""Images found by words: in NVIDIA's catalogue, on Docker Hub, and in the tables that need no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.compat.tables.load import Tables
from kedge.errors import KedgeError, NetworkFailed, UsageError
from kedge.system.threads import answer_within

if TYPE_CHECKING:
    from kedge.image.registry.catalog import CatalogAnswer, CatalogEntry
    from kedge.image.workplace import Workplace

NGC, HUB = "ngc", "hub"
TABLES = "kedge's tables"
_PATIENCE = 25.0  # seconds for all catalogues together, whatever they do
_LONGEST_QUERY = 200


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found; `silent` says of each catalogue that did not answer, why."""

    entries: tuple[CatalogEntry, ...]
    totals: dict[str, int] = field(default_factory=dict)  # by catalogue: how many it has in all
    silent: dict[str, str] = field(default_factory=dict)


def search(
    words: Sequence[str], workplace: Workplace, tables: Tables, *, catalogs: Sequence[str] = (NGC, HUB), limit: int = 25
) -> SearchResult:
    """Images for some words, `limit` of each catalogue; without catalogues those of the tables alone.

    A catalogue that does not answer is left out; NetworkFailed where none of them does.
    """
    text = " ".join(words).strip()
    if not text or len(text) > _LONGEST_QUERY or not text.isprintable():
        raise UsageError(
            f"a search takes some words, up to {_LONGEST_QUERY} characters", hint="as in: kedge search pytorch"
        )
    known = _search_tables(text.split(), tables) or _search_tasks(text.split(), tables)
    if not catalogs:
        return SearchResult(tuple(known[:limit]), {TABLES: len(known)})
    answers, problems = _ask(text, workplace, catalogs, limit)
    if not answers:
        raise _explain_silence(problems, text)
    entries = {title: answer.entries for title, answer in answers.items()}
    totals = {title: answer.total for title, answer in answers.items()}
    silent = {title: problem.message for title, problem in problems.items()}
    return SearchResult(_merge(entries, known), totals, silent)


def _search_tables(words: Sequence[str], tables: Tables) -> list[CatalogEntry]:
    """The repositories of the tables whose name or framework has all the words."""
    from kedge.image.registry.catalog import CatalogEntry

    entries = []
    for image in tables.images:
        rows = tables.list_releases(image)
        framework = next((row.framework for row in rows if row.framework), "")
        text = f"{image} {framework}".lower()
        if rows and all(word.lower() in text for word in words):
            count = f"{len(rows)} tags" if len(rows) > 1 else "one tag"
            about = f"{framework}; kedge's tables know {count}" if framework else f"kedge's tables know {count}"
            entries.append(CatalogEntry(image, TABLES, framework, about, known_tag=rows[0].tag))
    return entries


def _search_tasks(words: Sequence[str], tables: Tables) -> list[CatalogEntry]:
    """The images that are known to do what the words name: a task, a program, a site or a kind of GPU."""
    from kedge.compat.tables.known_images import load_known_images
    from kedge.image.registry.catalog import CatalogEntry

    return [
        CatalogEntry(
            row.image,
            TABLES,
            row.task,
            row.describe(),
            known_tag=_find_newest(row.image, row.tags, tables) if row.is_pattern else row.tags,
            multi_gpu=row.multi_gpu,
            multi_node=row.multi_node,
            warning=row.warning,
            source=row.source,
        )
        for row in load_known_images()
        if row.has_words(words)
    ]


def _find_newest(image: str, pattern: str, tables: Tables) -> str:
    return next((row.tag for row in tables.list_releases(image) if fnmatchcase(row.tag, pattern)), "")


def _ask(
    text: str, workplace: Workplace, catalogs: Sequence[str], limit: int
) -> tuple[dict[str, CatalogAnswer], dict[str, KedgeError]]:
    """Ask all catalogues at once; what takes too long is left alone, and ends with the process."""
    from kedge.image.registry.catalog import HubCatalog, NgcCatalog

    with workplace.open_access(patient=False) as access:
        ngc, hub = NgcCatalog(access.transport), HubCatalog(access.transport)
        known: dict[str, NgcCatalog | HubCatalog] = {NGC: ngc, HUB: hub}
        unknown = next((name for name in catalogs if name not in known), None)
        if unknown is not None:
            raise UsageError(f"unknown catalogue '{unknown[:40]}'", hint=f"use {NGC} or {HUB}")
        chosen = {known[name].title: known[name] for name in catalogs}
        asked = {title: partial(_note, catalog.search, text, limit) for title, catalog in chosen.items()}
        answered = answer_within(_PATIENCE, asked)
    late = {title: NetworkFailed(f"{title} did not answer within {_PATIENCE:.0f} s") for title in chosen}
    outcomes = {title: answered.get(title, late[title]) for title in chosen}
    said = {title: outcome for title, outcome in outcomes.items() if not isinstance(outcome, KedgeError)}
    return said, {title: outcome for title, outcome in outcomes.items() if isinstance(outcome, KedgeError)}


def _note(ask: Callable[[str, int], CatalogAnswer], text: str, limit: int) -> CatalogAnswer | KedgeError:
    try:
        return ask(text, limit)
    except KedgeError as problem:
        return problem


def _merge(by_catalog: dict[str, tuple[CatalogEntry, ...]], known: list[CatalogEntry]) -> tuple[CatalogEntry, ...]:
    """NVIDIA's results with the newest tag of the tables, what the tables know besides, and Docker Hub's results."""
    by_name = {entry.name: entry for entry in known}
    ours = [entry for title, entries in by_catalog.items() if title == "NGC" for entry in entries]
    others = [entry for title, entries in by_catalog.items() if title != "NGC" for entry in entries]
    merged = [
        replace(entry, known_tag=by_name[entry.name].known_tag) if entry.name in by_name else entry for entry in ours
    ]
    names = {entry.name for entry in ours}
    besides = [entry for entry in known if entry.name not in names or entry.source]  # a task is told beside the image
    return (*merged, *besides, *others)


def _explain_silence(problems: dict[str, KedgeError], text: str) -> NetworkFailed:
    names = " and ".join(problems)
    context = {title: problem.message for title, problem in problems.items()}
    first = next(iter(problems.values()))
    return NetworkFailed(
        f"{names} {'do' if len(problems) > 1 else 'does'} not answer, so nothing could be searched: {first.message}",
        context=context,
        hint=f"'kedge search {text} --offline' searches the tables that come with kedge"
        + (f"; {first.hint}" if first.hint else ""),
    )
