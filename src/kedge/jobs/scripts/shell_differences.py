# SPDX-License-Identifier: BSD-3-Clause
"""Why a container's command would become another one: what sh in the container does not do as bash on the node did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kedge.base.shell_text import KEYWORDS, Command, Word
from kedge.jobs.scripts.script import ContainerCall
from kedge.jobs.scripts.variables import (
    find_assignments,
    find_names,
    find_own_names,
    find_values,
    resolve_word,
    resolve_words,
    uses_arguments,
)

# variables and arguments, which sh in the container knows as well as the shell on the node
_SIMPLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[1-9@*#]|\{[1-9@*#]\})|\\.", re.DOTALL)
_HOSTS_OWN = re.compile(r"[$`*?\[{~]|<\(")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]")
_EXPANSION = re.compile(r"\$\(.*\)|\$\{[^}]*\}|`[^`]*`", re.DOTALL)  # where *, ? and [ mean something else
_BINDS = ("--bind", "--container-mounts")
_PREFIXES = ("builtin", "command")


def find_doubt(call: ContainerCall, values: Mapping[str, str], before: Sequence[Command]) -> str:
    """Why the container's command cannot be expanded inside the container; empty when it can."""
    unknown = _find_unknown(call.command, values)
    for word in unknown:
        if _HOSTS_OWN.search(_QUOTED.sub(_leave_expansions, _SIMPLE.sub(_leave_escapes, word.raw))):
            return f"'{word.raw}' is expanded on the node and cannot be expanded in the container"
    text = "\n".join(command.source for command in before)
    for name in dict.fromkeys(name for word in unknown for name in find_names(word.raw)):
        if re.search(
            rf"\b{name}\+?=\(|\b(?:read|mapfile|readarray|getopts|printf|declare|typeset|local|let)\b.*\b{name}\b", text
        ):
            return f"the variable {name} is set in a way that only the script's shell can evaluate"
    for name in find_expanded(call.command) if unknown else ():
        if _is_hidden(name, call.command, text):
            return f"a shell in the container would see the variable {name}, which the script does not export"
    return _find_pattern(unknown, values, before)


def find_expanded(words: Sequence[Word]) -> list[str]:
    """The variables that the shell puts into these words itself, not those that quotes keep for a later one."""
    return find_names("\n".join(_QUOTED.sub(_leave_open, word.raw) for word in words))


def _leave_open(match: re.Match[str]) -> str:
    text = match.group()
    return re.sub(r"\\.", "", text) if text.startswith('"') else ""


def _leave_escapes(match: re.Match[str]) -> str:
    """Nothing of a variable; an escape stays, so that an escaped quote begins nothing."""
    return match.group() if match.group().startswith("\\") else ""


def _leave_expansions(match: re.Match[str]) -> str:
    """Only $ and backquotes mean something between double quotes, and nothing between single ones."""
    text = match.group()
    return "".join(re.findall(r"[$`]", _SIMPLE.sub("", text))) if text.startswith('"') else ""


def _is_hidden(name: str, command: Sequence[Word], text: str) -> bool:
    """Whether quotes keep a use of it for a shell in the container, to which the script does not show it."""
    if not re.search(rf"(?<![\w$]){name}\+?=", text) or re.search(rf"\bexport\b[^\n;]*\b{name}\b", text):
        return False
    use = re.compile(rf"\$\{{?{name}\b")
    escaped = re.compile(rf"\\\$\{{?{name}\b")
    texts = [part for word in command for part in _QUOTED.findall(word.raw) if part.startswith("'")]
    return any(use.search(part) for part in texts) or any(escaped.search(word.raw) for word in command)


def _find_pattern(unknown: Sequence[Word], values: Mapping[str, str], before: Sequence[Command]) -> str:
    """A pattern of file names in a variable without quotes around it: the node's files are meant."""
    assigned = [word.text.partition("=") for command in before for word in find_assignments(command)]
    for name in (name for word in unknown for name in find_names(_QUOTED.sub("", word.raw))):
        texts = [_EXPANSION.sub("", text) for each, _, text in assigned if each.removesuffix("+") == name]
        if any(_PATTERN.search(text) for text in [*texts, values.get(name, "")]):
            return f"the variable {name} holds a pattern of file names, which is expanded on the node"
    return ""


def find_change(
    call: ContainerCall, command: Sequence[Word], values: Mapping[str, str], before: Sequence[Command], scheduler: str
) -> str:
    """A line before the container that changes what variables hold, or what the shell makes of them.

    `command` is the part of the container's command that is kept. Variables of the scheduler's are nobody's to set.
    """
    options = [(name, word) for name, word in call.options if word is not None]
    words = [*call.launcher, *([call.image] if call.image else []), *command]
    if _find_uses([*words, *(word for _, word in options)], scheduler):
        why = next(filter(None, map(_read_mode, before)), "")
        if why:
            return why
    # binds that are not known yet are expanded behind all these lines, in the same shell
    known_options = [word for name, word in options if name not in _BINDS or resolve_word(word, values) is not None]
    used = _find_uses([*words, *known_options], scheduler)
    last = max((index for index, each in enumerate(before) if _sets_anything(each)), default=None)
    if last is None or used <= find_values(before[last + 1 :]).keys():
        return ""
    line, name = before[last].line, _name_of(before[last])
    return f"'{name}' in line {line} may set variables that the container's command uses"


def _find_uses(words: Sequence[Word], scheduler: str) -> set[str]:
    """Variables, and '@' for arguments."""
    text = "\n".join(word.raw for word in words if not word.is_literal)
    names = set(find_names(text)) - set(find_own_names(scheduler, text))
    return names | {"@"} if uses_arguments(text) else names


def _name_of(command: Command) -> str:
    texts = (word.text for word in command.words if word.raw not in KEYWORDS and not word.is_assignment)
    return next((text for text in texts if text not in _PREFIXES), "")


def _sets_anything(command: Command) -> bool:
    """Whether it can set any variable, under a name that does not stand there."""
    name, words = _name_of(command), [word.text for word in command.words]
    if name in ("source", "."):
        return not is_module_setup(words)
    if name in ("export", "declare", "typeset", "readonly"):
        return any(word.raw.startswith(("$", "`", '"$')) for word in command.words[1:])
    return name == "eval" or (name == "printf" and "-v" in words)


def _read_mode(command: Command) -> str:
    """How a command changes what the shell makes of variables and arguments."""
    if any(re.match(r"IFS\+?=", word.raw) for word in find_assignments(command)):
        return f"IFS in line {command.line} changes where the shell splits variables"
    if _name_of(command) != "set":
        return ""
    words = [word.text for word in command.words]
    words = words[words.index("set") + 1 :]
    if sets_arguments(command):
        return f"'set' in line {command.line} gives the script other arguments"
    if any(re.match(r"-[A-Za-z]*f", word) for word in words) or "noglob" in words:
        return f"'set' in line {command.line} keeps the shell from expanding patterns of file names"
    return ""


def sets_arguments(command: Command) -> bool:
    """Whether it is a `set` that replaces the script's arguments."""
    words = [word.text for word in command.words]
    if _name_of(command) != "set":
        return False
    words = words[words.index("set") + 1 :]
    while words and re.match(r"[-+][A-Za-z]+\Z", words[0]):
        words = words[2 if words[0].endswith("o") else 1 :]
    return bool(words)


def is_module_setup(words: Sequence[str]) -> bool:
    """Whether a line only makes `module` work."""
    return words[:1] in (["source"], ["."]) and words[-1].endswith(("/modules.sh", "/lmod.sh"))


def find_run_doubt(call: ContainerCall, command: Sequence[Word], values: Mapping[str, str]) -> str:
    """The image's own script gets words, and no shell stands before it that could expand them."""
    if call.verb != "run" or is_only_arguments(command) or not _find_unknown(command, values):
        return ""
    return "only the shell on the node knows the arguments of the image's runscript"


def is_only_arguments(command: Sequence[Word]) -> bool:
    """Whether a command is all that is given at submission, unchanged."""
    return [word.raw for word in command] in (['"$@"'], ['"${@}"'])


def _find_unknown(words: Sequence[Word], values: Mapping[str, str]) -> list[Word]:
    return [word for word in words if resolve_words(word, values) is None]
