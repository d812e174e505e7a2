# SPDX-License-Identifier: BSD-3-Clause
"""What kedge says, asserted by name: the sentences themselves stand in `tests/golden/wording/SUBJECT.toml`, each once.

    assert_says(done.stderr, "pull/no-such-tag", tag, repository)   # the sentence stands in the text
    assert_reads(error.hint, "pull/list-the-tags", repository)      # the text is the sentence

`{0}`, `{1}` in a sentence are the values of the test. Who words a message better runs `scripts/reword TESTS`: tests
that do not find their sentence then take the nearest words of what was said, put places for their values into it, and
write the file. A text that is nothing like the sentence, or lacks a value, fails as ever.
"""

from __future__ import annotations

import collections
import fcntl
import functools
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path

REWRITE = "WRITE_WORDING"  # names the file that takes what was rewritten; scripts/reword sets it
GOLDEN = Path(__file__).with_name("golden") / "wording"
_HEADING = "# What kedge says, as tests expect it (tests/wording.py). `scripts/reword TESTS` writes it anew.\n\n"
_UNUSED = 0xF0000
_LIKE = 0.5  # what is less like the old sentence is not a new wording of it
_PLACEHOLDER = re.compile(r"\{(\d+)\}")
_WORD = re.compile(r"\w(?:[\w./-]*\w)?|[^\w\s]")


def assert_says(text: str | Collection[str], name: str, *values: object) -> None:
    """The sentence stands in the text, or is one of the texts."""
    __tracebackhide__ = True
    _assert(text, name, values, lambda wanted: wanted in text)


def assert_reads(text: str | Sequence[str] | None, name: str, *values: object) -> None:
    """The text, or the only one of these, is the sentence, to the last character."""
    __tracebackhide__ = True
    said = text[0] if isinstance(text, list | tuple) and len(text) == 1 else text
    _assert(said, name, values, lambda wanted: wanted == said)


def assert_begins(text: str, name: str, *values: object) -> None:
    """The text begins with the sentence."""
    __tracebackhide__ = True
    _assert(text, name, values, text.startswith)


def assert_ends(text: str, name: str, *values: object) -> None:
    """The text ends with the sentence."""
    __tracebackhide__ = True
    _assert(text, name, values, text.endswith)


def _assert(text: object, name: str, values: tuple[object, ...], holds: Callable[[str], bool]) -> None:
    __tracebackhide__ = True
    sentence = read_sentences(name)[name]
    wanted = fill(sentence, values)
    if has_places(sentence, values) and holds(wanted):
        return
    notes = os.environ.get(REWRITE)
    if notes and _rewrite(text, name, values, holds, Path(notes)):
        return
    got = "\n".join(text) if isinstance(text, list | tuple | set | frozenset) else str(text)
    nearest = find_nearest(got, wanted)
    lines = [name, f"  wanted:  {wanted}", *([f"  nearest: {nearest}"] if nearest else []), f"  got:     {got}"]
    if not has_places(sentence, values):
        lines.insert(1, f"  has not the places for {len(values)} values: {sentence}")
    raise AssertionError("\n".join(line.replace("\n", "\n           ") for line in lines))


def fill(sentence: str, values: tuple[object, ...]) -> str:
    """The sentence with the values in their places; a place without a value stays as it is."""
    filled = {str(number): str(value) for number, value in enumerate(values)}
    return _PLACEHOLDER.sub(lambda found: filled.get(found[1], found[0]), sentence)


def has_places(sentence: str, values: tuple[object, ...]) -> bool:
    """Whether the sentence has a place for each value, and no other."""
    return {int(number) for number in _PLACEHOLDER.findall(sentence)} == set(range(len(values)))


def read_sentences(name: str) -> dict[str, str]:
    """All sentences of the subject that `name` begins with, by their full names."""
    sentences = read_subject(name.partition("/")[0])
    if name not in sentences:
        raise KeyError(f"{name} is not in {GOLDEN}: write the sentence there")
    return sentences


@functools.cache
def read_subject(subject: str) -> dict[str, str]:
    """The sentences of one file, by their full names."""
    path = GOLDEN / f"{subject}.toml"
    sentences = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {f"{subject}/{slug}": sentence for slug, sentence in sentences.items()}


def write_subject(subject: str, sentences: dict[str, str]) -> None:
    """Whole or not at all; in the order of the names, so that a change is one line."""
    lines = [f"{name.partition('/')[2]} = {json.dumps(text, ensure_ascii=False)}\n" for name, text in sentences.items()]
    with tempfile.NamedTemporaryFile("w", dir=GOLDEN, prefix=".", delete=False, encoding="utf-8") as half:
        half.write(_HEADING + "".join(sorted(lines)))
    Path(half.name).chmod(0o644)
    Path(half.name).rename(GOLDEN / f"{subject}.toml")


def _rewrite(text: object, name: str, values: tuple[object, ...], holds: Callable[[str], bool], notes: Path) -> bool:
    """Put what is said now in the sentence's place; not a second time in one run, when two tests would contradict."""
    with _lock():
        read_subject.cache_clear()  # another worker may have written it
        sentences = read_sentences(name)
        old = sentences[name]
        new = reword(text, old, values, holds)
        noted = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        if new == old:
            return True  # the other worker has
        if new is None or name in noted:
            return False
        write_subject(name.partition("/")[0], sentences | {name: new})
        read_subject.cache_clear()
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n  was {old!r}\n  is  {new!r}\n  in  {test}\n")
    return True


@contextmanager
def _lock() -> Iterator[None]:
    """One process at a time changes the files."""
    directory = os.open(GOLDEN, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def reword(text: object, sentence: str, values: tuple[object, ...], holds: Callable[[str], bool]) -> str | None:
    """The sentence as `text` has it now, with places for the values; None where it has none, or lacks a value."""
    wanted = fill(sentence, values)
    same = [wanted] if has_places(sentence, values) else []
    said = [*same, *_list_parts(text, wanted, values)]
    said = [each for each in said if holds(each) and _likeness(wanted, each) >= _LIKE]
    return _put_back(said[0], sentence, values) if said else None


def _list_parts(text: object, wanted: str, values: tuple[object, ...]) -> Iterator[str]:
    """What of the text may be the sentence now: the nearest words, with values, with what is around them; all of it."""
    if isinstance(text, str):
        if nearest := find_nearest(text, wanted):
            begin, _, end = text.partition(nearest)
            yield _widen(begin.rpartition("\n")[2], nearest, end.partition("\n")[0], values)
            yield from (nearest, begin + nearest, nearest + end)
        yield text
    elif isinstance(text, Collection):
        yield from sorted((each for each in text if isinstance(each, str)), key=lambda each: -_likeness(wanted, each))


def _widen(before: str, part: str, behind: str, values: tuple[object, ...]) -> str:
    """The part of a line, and of the rest so much that all the values are in it."""
    for value in map(str, values):
        if value not in part and value in before:
            before, _, more = before.rpartition(value)
            part = value + more + part
        elif value not in part and value in behind:
            more, _, behind = behind.partition(value)
            part += more + value
    return part


def _likeness(one: str, other: str) -> float:
    """From 0 to 1: of their characters in order, or of their words in any."""
    ours, theirs = (collections.Counter(_WORD.findall(text.lower())) for text in (one, other))
    words = 2 * (ours & theirs).total() / ((ours + theirs).total() or 1)
    return max(words, SequenceMatcher(None, one, other, autojunk=False).ratio())


def find_nearest(text: str, wanted: str) -> str | None:
    """The part of the text that says most nearly what is wanted: words of one line, or of as many lines as it has."""
    lines = text.split("\n")
    core = wanted.strip("\n")
    height = core.count("\n") + 1
    blocks = ["\n".join(lines[first : first + height]) for first in range(max(1, len(lines) - height + 1))]
    words = set(_WORD.findall(core))
    likely = sorted(blocks, key=lambda block: -len(words & set(_WORD.findall(block))))[:5]
    parts = [part for block in likely for part in (_cut(block, core), block.strip().removeprefix("kedge: "))]
    found = max(parts, key=lambda part: _likeness(core, part))
    if _likeness(core, found) < _LIKE:
        return None
    before, after = wanted[: len(wanted) - len(wanted.lstrip("\n"))], wanted[len(wanted.rstrip("\n")) :]
    return next((each for each in (before + found + after, found + after, found) if each in text), found)


def _cut(block: str, wanted: str) -> str:
    """The words of the block that fit best, and at both ends as many more as have lost their like."""
    ours, theirs = _WORD.findall(wanted), list(_WORD.finditer(block))
    words = [each[0] for each in theirs]
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(ours)
    best, first, last = 0.0, 0, len(words)
    for start in range(len(words)):
        for end in range(start + 1, min(len(words), start + 2 * len(ours) + 5) + 1):
            matcher.set_seq1(words[start:end])
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
                best, first, last = matcher.ratio(), start, end
    if not best:
        return block
    matcher.set_seq1(words[first:last])
    *matches, _ = matcher.get_matching_blocks()
    first = max(0, first - matches[0].b)
    last = min(len(words), last + len(ours) - matches[-1].b - matches[-1].size)
    start = 0 if first == 0 and wanted[:1].isspace() else theirs[first].start()
    return block[start : theirs[last - 1].end()]


def _put_back(said: str, sentence: str, values: tuple[object, ...]) -> str | None:
    """Places for the values; of equal ones in the order of the old sentence, which may have one in words, too."""
    for value in sorted({str(value) for value in values}, key=len, reverse=True):
        mine = [f"{{{number}}}" for number, each in enumerate(values) if str(each) == value]
        word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
        marks = re.findall("|".join([*map(re.escape, mine), word.pattern]), sentence) or mine
        parts = word.split(said)
        if not value or len(parts) == 1:
            return None
        marks += marks[-1:] * len(parts)
        said = parts[0] + "".join(_hide(mark) + part for mark, part in zip(marks, parts[1:], strict=False))
    return _show(said)


def _hide(mark: str) -> str:
    """Where no other value is found in it: its characters moved to where Unicode has none."""
    return "".join(chr(_UNUSED + ord(each)) for each in mark)


def _show(text: str) -> str:
    return "".join(chr(ord(each) - _UNUSED) if ord(each) > _UNUSED else each for each in text)
