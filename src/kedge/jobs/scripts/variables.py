# SPDX-License-Identifier: BSD-3-Clause
"""What variables of a script are certain to hold, and which ones a piece of it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kedge.base.shell_text import Command, Word
from kedge.cluster.schedulers.choose import find_facts

_SETTERS = ("read", "unset", "mapfile", "readarray", "getopts")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_USE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_QUOTED = re.compile(r'"[^"]*"')
_PATTERN = re.compile(r"[*?\[]")  # which the shell replaces by names of files
_SPLIT = re.compile(r"[\s*?\[]")
_POSITIONAL = re.compile(r"(?<!\\)\$(?:[0-9@*#](?!\w*=)|\{[#!]?[0-9@*]+\b|\{[@*#])|(?:^|[;&|\s])shift(?=\s|;|$)")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")


def find_values(commands: Iterable[Command]) -> dict[str, str]:
    """Variables that are set once, to something literal or to what earlier ones of these hold."""
    values: dict[str, str] = {}
    seen: set[str] = set()
    condition = False  # whether the command before decides if this one runs
    for command in commands:
        for word in find_assignments(command):
            name, _, _ = word.text.partition("=")
            is_open = condition or name in seen or name.endswith("+")
            value = None if is_open else _resolve_assignment(word, values)
            name = name.removesuffix("+")
            values.pop(name, None)
            if value is not None:
                values[name] = value
            seen.add(name)
        for name in _find_set_names(command):
            values.pop(name, None)
            seen.add(name)
        condition = command.end in ("&&", "||") and command.name not in ("", "cd", "export")
    return values


def _find_set_names(command: Command) -> list[str]:
    """Variables that a command sets to something that is known only when it runs."""
    texts = [word.text for word in command.words]
    if command.name == "let":
        return [name for text in texts[1:] for name in _IDENTIFIER.findall(text)]
    return texts[1:] if texts[:1] == ["for"] or command.name in _SETTERS else []


def _resolve_assignment(word: Word, values: Mapping[str, str]) -> str | None:
    """What an assignment gives its variable: nothing is split there, so that quotes make no difference."""
    _, _, raw = word.raw.partition("=")
    quoted = raw if raw.startswith('"') else f'"{raw}"'
    return (
        word.text.partition("=")[2] if word.is_literal else resolve_word(Word(quoted, word.text, False), values, skip=1)
    )


def find_assignments(command: Command) -> Sequence[Word]:
    """The words of a command that set variables for the commands after it."""
    words = command.words
    if words and words[0].text in ("export", "declare", "typeset", "readonly", "local"):
        return [word for word in words[1:] if word.is_assignment]
    return words if all(word.is_assignment for word in words) else ()


def resolve_word(word: Word, values: Mapping[str, str], *, skip: int = 0) -> str | None:
    """What a word stands for, when that is certain and one word; `skip` is 1 for the part behind NAME=."""
    if word.is_literal:
        return word.text
    source = word.text.partition("=")[2] if skip else word.text
    if "'" in word.raw or "\\" in word.raw or "`" in word.raw or re.search(r"[*?\[{~]", _USE.sub("", word.raw)):
        return None
    used = [braced or bare for braced, bare in _USE.findall(source)]
    if not used or any(name not in values for name in used):
        return None
    if not _QUOTED.fullmatch(word.raw) and any(not values[name] or _SPLIT.search(values[name]) for name in used):
        return None  # the shell makes several words of it, or none
    text = _USE.sub(lambda found: values[found[1] or found[2]], source)
    return None if "$" in text else text


def resolve_words(word: Word, values: Mapping[str, str]) -> list[str] | None:
    """The words that the shell makes of one: a value without quotes around it is split at blanks."""
    known = resolve_word(word, values)
    if known is not None:
        return [known]
    if '"' in word.raw:
        return None
    whole = resolve_word(Word(f'"{word.raw}"', word.text, is_literal=False), values)
    return None if whole is None or _PATTERN.search(whole) else whole.split()


def find_names(text: str) -> list[str]:
    """The variables that a piece of shell uses."""
    return list(dict.fromkeys(_NAME.findall(text)))


def uses_arguments(text: str) -> bool:
    """Whether a piece of shell uses what stands behind the script's name on the command line: $1, $@, shift."""
    return _POSITIONAL.search(text) is not None


def find_own_names(scheduler: str, text: str) -> list[str]:
    """Those of them that only one scheduler sets."""
    pattern = find_facts(scheduler).own_variables
    return [name for name in find_names(text) if pattern and re.fullmatch(pattern, name)]
