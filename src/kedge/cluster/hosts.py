# SPDX-License-Identifier: BSD-3-Clause
"""Lists of hosts and of counts as schedulers write them: pure, and with bounds, for they come from the environment.

Slurm: `n[1-2,004-006],gpu-[01-02]-x[1-3]` and `2(x2),1`; Grid Engine's PE_HOSTFILE, PBS_NODEFILE, LSB_MCPU_HOSTS.
"""

from __future__ import annotations

from itertools import product

from kedge.base.patterns import late_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kedge.errors import LaunchRefused

MOST_HOSTS = 100_000  # more nodes than any machine has: a list that names more is no list of hosts
MOST_TEXT = 1 << 20
_COUNT = late_pattern(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")
_RANGE = late_pattern(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NAME = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")  # begins with no dash: it becomes a word of a command
_BRACKET = late_pattern(r"[\[\],]")
_PIECE = late_pattern(r"([^\[\],\s]*)(?:\[([0-9,-]+)\])?")


def parse_hosts(text: str, source: str = "the host list") -> tuple[str, ...]:
    """Slurm's list, in its order, as `scontrol show hostnames` prints it; `source` names it in an error."""
    _check_length(text, source)
    hosts: list[str] = []
    for word in _split_words(text.strip(), source):
        for name in _expand_word(word, source):
            hosts.append(_check_name(name, source))
            if len(hosts) > MOST_HOSTS:
                raise _refuse(source, text, f"names more than {MOST_HOSTS} hosts")
    if not hosts:
        raise _refuse(source, text, "names no host")
    return tuple(hosts)


def parse_counts(text: str, source: str = "the list of tasks per node") -> tuple[int, ...]:
    """`2(x2),1` is 2, 2, 1."""
    _check_length(text, source)
    counts: list[int] = []
    for word in text.strip().split(","):
        match = _COUNT.fullmatch(word)
        if match is None:
            raise _refuse(source, text, f"has '{_shorten(word)}', which is no number")
        times = int(match[2] or 1)
        if len(counts) + times > MOST_HOSTS:
            raise _refuse(source, text, f"is for more than {MOST_HOSTS} hosts")
        counts += [int(match[1])] * times
    return tuple(counts)


def parse_pe_hostfile(text: str, source: str = "PE_HOSTFILE") -> tuple[tuple[str, int], ...]:
    """Grid Engine's: host and slots, those of several queues on one host together, in the order of first mention."""
    pairs = []
    for words in _read_lines(text, source):
        slots = words[1] if len(words) > 1 else ""
        if not _is_number(slots):
            raise _refuse(source, " ".join(words), "has a line without a number of slots behind the host")
        pairs.append((words[0], int(slots)))
    return _add_up(pairs, source)


def parse_node_file(text: str, source: str = "PBS_NODEFILE") -> tuple[tuple[str, int], ...]:
    """PBS's: a line per process; host and how many lines name it, in the order of first mention."""
    return _add_up([(words[0], 1) for words in _read_lines(text, source)], source)


def parse_host_pairs(text: str, source: str = "LSB_MCPU_HOSTS") -> tuple[tuple[str, int], ...]:
    """LSF's `h1 4 h2 4`."""
    _check_length(text, source)
    words = text.split()
    if len(words) % 2 or not all(map(_is_number, words[1::2])):
        raise _refuse(source, text, "is not made of hosts and numbers in turn")
    return _add_up([(name, int(count)) for name, count in zip(words[::2], words[1::2], strict=True)], source)


def _split_words(text: str, source: str) -> Iterator[str]:
    """The words between commas that stand outside of brackets."""
    start, depth = 0, 0
    for match in _BRACKET.finditer(text):
        if match[0] == "," and not depth:
            if match.start() > start:  # Slurm's own reader passes over a comma too many
                yield text[start : match.start()]
            start = match.end()
        depth += {"[": 1, "]": -1, ",": 0}[match[0]]
        if depth not in (0, 1):
            raise _refuse(source, text, "has brackets that do not match")
    if depth:
        raise _refuse(source, text, "has a bracket that is not closed")
    if text[start:]:
        yield text[start:]


def _expand_word(word: str, source: str) -> Iterator[str]:
    """One word with any number of brackets; the last one turns fastest. They are counted before they are made."""
    pieces = [match.groups() for match in _PIECE.finditer(word) if match[0]]
    if "".join(text + (f"[{ranges}]" if ranges else "") for text, ranges in pieces) != word:
        raise _refuse(source, word, "cannot be read")
    total, parts = 1, []
    for text, ranges in pieces:
        spans = _read_ranges(ranges or "", source)
        total *= sum(len(span) for span, _ in spans) or 1
        if total > MOST_HOSTS:
            raise _refuse(source, word, f"names more than {MOST_HOSTS} hosts")
        parts.append((text, spans))
    choices = [
        [text + str(number).zfill(width) for span, width in spans for number in span] or [text] for text, spans in parts
    ]
    return map("".join, product(*choices))


def _read_ranges(text: str, source: str) -> list[tuple[range, int]]:
    """`1-2,004-006`: each with the width of its first number, which the others are filled up to."""
    spans = []
    for word in text.split(",", MOST_HOSTS) if text else ():
        match = _RANGE.fullmatch(word)
        if match is None:
            raise _refuse(source, text, f"has '{_shorten(word)}' between brackets")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_HOSTS:
            problem = "counts down" if last < first else f"names more than {MOST_HOSTS} hosts"
            raise _refuse(source, text, problem)
        spans.append((range(first, last + 1), len(match[1])))
    return spans


def _read_lines(text: str, source: str) -> Iterator[list[str]]:
    """The words of each line that is neither empty nor a comment."""
    _check_length(text, source)
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            yield words


def _add_up(pairs: Iterable[tuple[str, int]], source: str) -> tuple[tuple[str, int], ...]:
    """Counts of one host together. A host that is named with and without its domain is one."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for name, count in pairs:
        key = name.partition(".")[0] if not _is_address(name) else name
        names.setdefault(key, _check_name(name, source))
        counts[key] = counts.get(key, 0) + count
        if len(names) > MOST_HOSTS:
            raise _refuse(source, "", f"names more than {MOST_HOSTS} hosts")
    used = tuple((names[key], count) for key, count in counts.items() if count)
    if not used:
        raise _refuse(source, "", "names no host")
    return used


def _is_address(name: str) -> bool:
    return name.replace(".", "").isdecimal()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 7


def _check_length(text: str, source: str) -> None:
    if len(text) > MOST_TEXT:
        raise _refuse(source, text, f"has {len(text)} characters; kedge reads at most {MOST_TEXT}")


def _check_name(name: str, source: str) -> str:
    if not _NAME.fullmatch(name):
        raise _refuse(source, name, f"has '{_shorten(name)}', which is no host name")
    return name


def _shorten(text: str) -> str:
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    return shown.encode("unicode_escape").decode() if not shown.isprintable() else shown


def _refuse(source: str, text: str, problem: str) -> LaunchRefused:
    from kedge.errors import LaunchRefused  # late: only for an error

    return LaunchRefused(
        f"kedge cannot read {source}: it {problem}",
        context={"it is": _shorten(text)} if text else None,
        hint="run kedge launch in the job itself, with the variables and files that the scheduler made",
    )
