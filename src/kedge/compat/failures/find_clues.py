# SPDX-License-Identifier: BSD-3-Clause
"""From what a log has to what a user reads: causes before consequences, the rank that failed first before others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kedge.base.frozen import replace
from kedge.base.secret_text import mask_secrets
from kedge.compat.failures.catalogue import load_catalogue
from kedge.compat.failures.failure import CAUSE, CONSEQUENCE, GENERAL, LEVELS, NOTE, Clue
from kedge.compat.failures.log_search import LogSearch, Occurrence, Sighting
from kedge.image.clean_config import clean_text

_LONGEST_LINE = 240
_ARCHITECTURE = re.compile(r"\b(?:sm|compute)_(\d{1,2})(\d)")  # `sm_86`, which people know as 8.6


def explain_failure(text: str) -> Clue | None:
    """The likeliest cause in the output of something that failed; None if kedge knows no message in it."""
    return next(iter(find_clues(text)), None)


def find_clues(text: str, *, notes: bool = False) -> tuple[Clue, ...]:
    """What of `text` explains a failure, the likeliest first; with `notes` also what is worth knowing."""
    return search_pieces([text.encode("utf-8", "replace")], notes=notes)


def search_pieces(pieces: Iterable[bytes], *, notes: bool = False, file: str = "") -> tuple[Clue, ...]:
    """The same for the pieces of a log, which may be endless."""
    search = LogSearch(load_catalogue())
    for piece in pieces:
        search.feed(piece)
    return make_clues(search.finish(), notes=notes, file=file)


def make_clues(sightings: Mapping[str, Sighting], *, notes: bool = False, file: str = "") -> tuple[Clue, ...]:
    """Clues in the order in which they are worth reading."""
    enough = [sighting for sighting in sightings.values() if sighting.is_enough]
    culprit = _find_first_rank(enough)
    clues = _demote_late([_make_clue(sighting, culprit, file) for sighting in enough])
    return tuple(sort_clues((clue for clue in clues if notes or clue.level != NOTE), culprit))


def sort_clues(clues: Iterable[Clue], culprit: str = "") -> list[Clue]:
    """Causes before what follows from them; the rank that failed first before others; then as the catalogue has them.

    A line without a label is the launcher's or the scheduler's, and as good as the first rank's.
    """

    places = load_catalogue().places

    def judge(clue: Clue) -> tuple[int, bool, int, int]:
        is_of_others = bool(culprit and clue.rank and clue.rank != culprit)
        return LEVELS.index(clue.level), is_of_others, places[clue.name], clue.number

    return sorted(clues, key=judge)


def _demote_late(clues: list[Clue]) -> list[Clue]:
    """A job that ran into its time limit after a rank had died did so because of that rank."""
    late = {failure.name for failure in load_catalogue().failures if failure.is_late}
    first = min(
        (clue.number for clue in clues if clue.level in (CAUSE, GENERAL) and clue.name not in late), default=None
    )
    if first is None:
        return clues
    return [replace(clue, level=CONSEQUENCE) if clue.name in late and clue.number > first else clue for clue in clues]


def _find_first_rank(sightings: Iterable[Sighting]) -> str:
    """The rank that failed first: whom a launcher names, else who wrote the first failure."""
    named: list[tuple[int, str]] = []
    wrote: list[tuple[int, str]] = []
    for sighting in sightings:
        for each in sighting.by_rank.values():
            rank = _read_named_rank(each)
            if rank:
                named.append((each.number, rank))
            elif each.failure.level != NOTE and each.rank:
                wrote.append((each.number, each.rank))
    first = min(named or wrote, default=(0, ""))
    return first[1]


def _read_named_rank(occurrence: Occurrence) -> str:
    """The rank of which the message itself tells: groups whose names begin with `rank`."""
    groups = occurrence.match.groupdict().items()
    return next((rank for name, rank in groups if rank and name.startswith("rank")), "")


def _make_clue(sighting: Sighting, culprit: str, file: str) -> Clue:
    seen = sighting.by_rank
    best = seen.get(culprit) or min(seen.values(), key=lambda each: each.number)
    failure = best.failure
    return Clue(
        line=_cut_line(best),
        cause=_fill(failure.cause, best),
        remedy=_fill(failure.remedy, best),
        name=failure.name,
        level=failure.level,
        sure=failure.sure,
        number=best.number,
        rank=best.rank or _read_named_rank(best),
        ranks=len([rank for rank in seen if rank]),
        count=sighting.count,
        file=file,
    )


def _cut_line(occurrence: Occurrence) -> str:
    """The line around a match, the match itself where it is long."""
    text, match = occurrence.text, occurrence.match
    end = text.find("\n", match.end())
    line = clean_text(text[: end if end >= 0 else len(text)], 4 * _LONGEST_LINE)
    return mask_secrets(line if len(line) <= _LONGEST_LINE else clean_text(match[0], _LONGEST_LINE))


def _fill(sentence: str, occurrence: Occurrence) -> str:
    """The sentence with what the groups matched; `{1}` is the only group that matched where others are alternatives."""
    groups = list(occurrence.match.groups())
    if groups and groups[0] is None and "{2}" not in sentence:
        named = occurrence.match.re.groupindex.values()
        groups[0] = next((each for place, each in enumerate(groups, 1) if each and place not in named), None)
    for number, group in enumerate(groups, 1):
        if f"{{{number}}}" in sentence:
            shown = mask_secrets(clean_text(_ARCHITECTURE.sub(r"\1.\2", group), 120)) if group else ""
            sentence = sentence.replace(f"{{{number}}}", shown or occurrence.failure.missing)
    return sentence
