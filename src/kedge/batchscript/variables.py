# SPDX-License-Identifier: BSD-3-Clause
"""What variables of a script are certain to hold, and which ones a piece of it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kedge.batchscript.shell import Command, Word

_USE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)")
# by which a script knows its scheduler: elsewhere they are empty
_OWN = {
    "slurm": re.compile(r"SLURM\w*|SRUN_\w+"),
    "gridengine": re.compile(r"SGE_\w+|PE_HOSTFILE|NSLOTS|NHOSTS|JOB_ID|JOB_NAME|TASK_ID"),
    "pbs": re.compile(r"PBS_\w+|NCPUS"),
}


def find_values(commands: Iterable[Command]) -> dict[str, str]:
    """Variables that are set once, to something literal."""
    values: dict[str, str] = {}
    seen: set[str] = set()
    for command in commands:
        for word in _assignments(command):
            name, _, value = word.text.partition("=")
            name = name.removesuffix("+")
            if name in seen:
                values.pop(name, None)
            elif word.is_literal:
                values[name] = value
            seen.add(name)
        if command.words and command.words[0].text in ("read", "for", "unset"):
            for word in command.words[1:2]:
                values.pop(word.text, None)
                seen.add(word.text)
    return values


def _assignments(command: Command) -> Sequence[Word]:
    words = command.words
    if words and words[0].text in ("export", "declare", "readonly", "local"):
        return [word for word in words[1:] if word.is_assignment]
    return words if all(word.is_assignment for word in words) else ()


def resolve_word(word: Word, values: Mapping[str, str]) -> str | None:
    """What a word stands for, when that is certain."""
    if word.is_literal:
        return word.text
    if "'" in word.raw or "\\" in word.raw or "`" in word.raw or re.search(r"[*?\[{~]", _USE.sub("", word.raw)):
        return None
    used = [braced or bare for braced, bare in _USE.findall(word.text)]
    if not used or any(name not in values for name in used):
        return None
    text = _USE.sub(lambda found: values[found[1] or found[2]], word.text)
    return None if "$" in text else text


def find_names(text: str) -> list[str]:
    """The variables that a piece of shell uses."""
    return list(dict.fromkeys(_NAME.findall(text)))


def find_own_names(scheduler: str, text: str) -> list[str]:
    """Those of them that only one scheduler sets."""
    pattern = _OWN.get(scheduler)
    return [name for name in find_names(text) if pattern is not None and pattern.fullmatch(name)]
