# SPDX-License-Identifier: BSD-3-Clause
"""Why a container's command would become another one: what sh in the container does not do as bash on the node did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kedge.batchscript.script import ContainerCall
from kedge.batchscript.shell import Command, Word
from kedge.batchscript.variables import find_names, resolve_words

# variables and arguments, which sh in the container knows as well as the shell on the node
_SIMPLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[1-9@*#]|\{[1-9@*#]\})|'[^']*'|\\.")
_HOSTS_OWN = re.compile(r"[$`*?\[{~]|<\(")


def find_doubt(call: ContainerCall, values: Mapping[str, str], before: Sequence[Command]) -> str:
    """Why the container's command cannot be expanded inside the container; empty when it can."""
    unknown = _find_unknown(call.command, values)
    for word in unknown:
        if _HOSTS_OWN.search(_SIMPLE.sub("", word.raw)):
            return f"'{word.raw}' is expanded on the node, and cannot be inside the container"
    names = [name for word in unknown for name in find_names(word.raw)]
    text = "\n".join(each.source for each in before)
    for name in names:
        if re.search(
            rf"\b{name}\+?=\(|\b(?:read|mapfile|readarray|getopts|printf|declare|typeset|local|let)\b.*\b{name}\b", text
        ):
            return f"the variable {name} is set in a way that only the script's own shell knows"
    return ""


def find_run_doubt(call: ContainerCall, command: Sequence[Word], values: Mapping[str, str]) -> str:
    """The image's own script gets words, and no shell stands before it that could expand them."""
    if call.verb != "run" or is_only_arguments(command) or not _find_unknown(command, values):
        return ""
    return "only the shell on the node can tell the words that the image's own script gets"


def is_only_arguments(command: Sequence[Word]) -> bool:
    """Whether a command is all that is given at submission, unchanged."""
    return [word.raw for word in command] in (['"$@"'], ['"${@}"'])


def _find_unknown(words: Sequence[Word], values: Mapping[str, str]) -> list[Word]:
    return [word for word in words if resolve_words(word, values) is None]
