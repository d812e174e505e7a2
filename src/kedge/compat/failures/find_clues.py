# SPDX-License-Identifier: BSD-3-Clause
"""From what a log has to what a user reads: causes before consequences, the rank that failed first before others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from kedge.base.frozen import frozen, replace
from kedge.base.secret_text import mask_secrets
from kedge.compat.failures.catalogue import (
    CAUSE,
    CONSEQUENCE,
    GENERAL,
    LEVELS,
    NOTE,
    Catalogue,
    Clue,
    Failure,
    load_catalogue,
)
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


# Searches a log of any size for known failures, piece by piece.
#
# Logs have gigabytes: bytes are searched for a few words first, and only lines that have one of them are decoded and
# compared with the catalogue. What is kept is bounded, whatever the log holds.

_LOOK_AHEAD = 8192  # bytes that are kept for lines that belong together
_LEAST_PIECE, _MOST_WAITING = 1 << 18, 1 << 10  # bytes, and pieces, that are searched at once
_LOG_SEARCH_LONGEST_LINE = 4096  # bytes of a line around a word
_LINES_TOGETHER = 4  # of one rank, which a pattern may span
_LINES_BETWEEN = 16  # of other ranks among them
_REMEMBERED = 20_000  # lines whose failures are known already
_MOST_RANKS = 4096
_ALIKE = bytes.maketrans(b"123456789\r", b"000000000\n")
_NUMBERS = re.compile(r"\d+(?:\.\d+)+|0x[0-9a-f]+|\d{4,}")
_QUOTED_CODE = ("raise ", "warnings.warn(")  # lines of the program in a traceback: the message itself comes after them
_TRACEBACK = "Traceback (most recent call last)"


@frozen
class Occurrence:
    """Where a failure's message was seen."""

    failure: Failure
    text: str  # the line without its label, and the lines of the same rank behind it
    match: re.Match[str]
    number: int
    rank: str


class Sighting:
    """All occurrences of one failure: the first of each rank, and how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.by_rank: dict[str, Occurrence] = {}

    @property
    def is_enough(self) -> bool:
        """Whether it was seen as often as it takes to mean something."""
        return any(self.count >= each.failure.least for each in self.by_rank.values())

    def add(self, occurrence: Occurrence) -> None:
        """Count it, and keep it if it is the first of its rank."""
        self.count += 1
        if len(self.by_rank) < _MOST_RANKS:
            self.by_rank.setdefault(occurrence.rank, occurrence)


class LogSearch:
    """Takes a log in pieces, and has what was found in it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.sightings: dict[str, Sighting] = {}
        self._catalogue = tuple(failure for failure in catalogue.failures if not failure.is_exception)
        self._exceptions = next(failure for failure in catalogue.failures if failure.is_exception)
        self._ending = re.compile(self._exceptions.pattern)  # capital letters count, unlike in other patterns
        self._marks = catalogue.marks
        self._kept = b""
        self._waiting: list[bytes] = []
        self._lines = 0  # before what is kept
        self._known: dict[str, tuple[Failure, ...]] = {}
        self._in_traceback: set[str] = set()

    def feed(self, piece: bytes) -> None:
        """Search the next piece; small ones wait until there are enough of them."""
        self._waiting.append(piece)
        if sum(map(len, self._waiting)) >= _LEAST_PIECE or len(self._waiting) >= _MOST_WAITING:
            self._search_waiting()

    def _search_waiting(self) -> None:
        buffer = self._kept + b"".join(self._waiting)
        self._waiting.clear()
        cut = buffer.rfind(b"\n", 0, max(len(buffer) - _LOOK_AHEAD, 0)) + 1
        if not cut:  # one endless line
            cut = max(len(buffer) - _LOOK_AHEAD, 0)
        self._search(buffer, cut)
        self._lines += buffer.count(b"\n", 0, cut)
        self._kept = buffer[cut:]

    def finish(self) -> dict[str, Sighting]:
        """Search what is left; returns all that was found, by the names of failures."""
        self._search_waiting()
        self._search(self._kept, len(self._kept))
        self._lines += self._kept.count(b"\n")
        self._kept = b""
        return self.sightings

    def _search(self, buffer: bytes, cut: int) -> None:
        """Compare all lines of the buffer that begin before `cut` and have a mark."""
        counted, number = 0, self._lines + 1
        for start, end in _list_marked(buffer, cut, self._marks):
            number += buffer.count(b"\n", counted, start)
            counted = start
            self._compare(buffer, start, end, number)

    def _compare(self, buffer: bytes, start: int, end: int, number: int) -> None:
        rank, line = split_label(remove_colours(buffer[start:end].decode("utf-8", "replace")).rstrip())
        if line.lstrip().startswith(_QUOTED_CODE):
            return
        known = self._known.get(key := _NUMBERS.sub("#", line))
        if known == ():
            self._watch_tracebacks(line, rank, number, has_explanation=False)
            return
        text = "\n".join([line, *_list_following(buffer, end, rank)])
        found = []
        for failure in self._catalogue if known is None else known:
            match = compile_pattern(failure.pattern).search(text)
            if match is None or match.start() > len(line) or _is_excused(failure, text):
                continue
            found.append(failure)
            self._note(Occurrence(failure, text, match, number, rank))
        self._watch_tracebacks(line, rank, number, has_explanation=bool(found))
        if known is None and len(self._known) < _REMEMBERED:
            self._known[key] = tuple(found)

    def _watch_tracebacks(self, line: str, rank: str, number: int, *, has_explanation: bool) -> None:
        """Note the exception at the end of a traceback."""
        if line.lstrip().startswith(_TRACEBACK):
            if len(self._in_traceback) < _MOST_RANKS:
                self._in_traceback.add(rank)
            return
        match = self._ending.match(line) if rank in self._in_traceback else None
        if match is None:
            return
        self._in_traceback.discard(rank)
        if not has_explanation:
            self._note(Occurrence(self._exceptions, line, match, number, rank))

    def _note(self, occurrence: Occurrence) -> None:
        self.sightings.setdefault(occurrence.failure.name, Sighting()).add(occurrence)


@functools.cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed."""
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _is_excused(failure: Failure, text: str) -> bool:
    return bool(failure.unless) and compile_pattern(failure.unless).search(text) is not None


def _list_marked(buffer: bytes, cut: int, marks: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """Beginnings and ends of the lines that have a mark, in their order."""
    lowered = buffer.lower()
    lines: dict[int, int] = {}
    for mark in _list_present(lowered, marks):
        place = lowered.find(mark)
        while 0 <= place < cut + _LOG_SEARCH_LONGEST_LINE:
            start, end = _find_line(buffer, place)
            if start < cut:
                lines[start] = max(end, lines.get(start, 0))
            place = lowered.find(mark, end)
    return sorted(lines.items())


def _list_present(lowered: bytes, marks: tuple[bytes, ...]) -> list[bytes]:
    """The marks that may be in a text; logs repeat themselves: lines that differ in numbers only are looked at "
    "once."""
    different = b"\n".join(set(lowered.translate(_ALIKE).split(b"\n")))
    return [mark for mark in marks if mark.translate(_ALIKE) in different]


def _find_line(buffer: bytes, place: int) -> tuple[int, int]:
    """The line around a place: also between carriage returns, as progress bars write them; never endless."""
    earliest, latest = max(place - _LOG_SEARCH_LONGEST_LINE, 0), place + _LOG_SEARCH_LONGEST_LINE
    start = buffer.rfind(b"\n", earliest, place) + 1 or earliest
    end = buffer.find(b"\n", place, latest)
    end = min(latest, len(buffer)) if end < 0 else end
    start = buffer.rfind(b"\r", start, place) + 1 or start
    returned = buffer.find(b"\r", place, end)
    return start, end if returned < 0 else returned


def _list_following(buffer: bytes, end: int, rank: str) -> Iterator[str]:
    """The next lines of the same rank, as far as they are in the buffer."""
    following = buffer[end : end + _LOG_SEARCH_LONGEST_LINE].splitlines()[1 : _LINES_BETWEEN + 1]
    taken = 0
    for each in following:
        other, line = split_label(remove_colours(each.decode("utf-8", "replace")).rstrip())
        if other == rank and taken < _LINES_TOGETHER:
            taken += 1
            yield line


# Labels that launchers and frameworks put before each line of a rank: recognised, and taken off.

_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
# srun -l; mpirun --tag-output of Open MPI 4 and 5; hydra's -l; PyTorch's own; torchrun --tee
_LABEL = re.compile(
    r"(?:"
    r"\s{0,6}(?P<srun>\d{1,7}): "
    r"|\[(?:\d+|[\w.@-]{1,80}@\d+),(?P<tagged>\d{1,7})\](?:\[[^\]]{1,80}\])?<(?:stdout|stderr|stddiag)>: ?"
    r"|\[(?P<hydra>\d{1,7})\] "
    r"|\[rank: ?(?P<lightning>\d{1,7})\] ?"
    r"|\[rank(?P<torch>\d{1,7})\]: ?"
    r"|\[[\w.-]{0,80}?(?:default|worker)(?P<tee>\d{1,7})\]: ?"
    r")"
)


def remove_colours(text: str) -> str:
    """The text without what colours it on a terminal."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


def split_label(line: str) -> tuple[str, str]:
    """The rank that a line's label names, and the line without it; an empty rank where there is no label."""
    found = _LABEL.match(line)
    if found is None:
        return "", line
    inner = _LABEL.match(line, found.end())  # PyTorch's label behind the launcher's: the launcher knows better
    return found[found.lastgroup or 0], line[(inner or found).end() :]
