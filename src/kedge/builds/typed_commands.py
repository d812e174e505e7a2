# SPDX-License-Identifier: BSD-3-Clause
"""Commands that were typed in a shell as a recipe: those that succeeded, without those that only look.

A recipe must run by itself: an installer that asked gets the option that answers for it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kedge.base.frozen import frozen

_LOOKS = frozenset((
    *("ls", "ll", "la", "cat", "less", "more", "head", "tail", "pwd", "history", "exit", "logout", "clear", "man"),
    *("info", "which", "whereis", "type", "echo", "printf", "env", "set", "printenv", "id", "whoami", "hostname"),
    *("uname", "date", "top", "htop", "ps", "df", "du", "free", "nvidia-smi", "vi", "vim", "nano", "emacs", "file"),
    *("stat", "find", "grep", "tree", "help", "alias", "fg", "bg", "jobs"),
))  # fmt: skip
_QUERIES = {
    "pip": ("list", "show", "freeze", "check", "config", "cache", "index"),
    "pip3": ("list", "show", "freeze", "check", "config", "cache", "index"),
    "apt": ("list", "search", "show", "policy"),
    "apt-get": ("check",),
    "apt-cache": ("search", "policy", "show"),
    "conda": ("list", "info", "search", "env list"),
    "git": ("status", "log", "diff", "show"),
}
_WRITES = re.compile(r"(?<![0-9&])>|\|\s*(?:tee|sh|bash|xargs)\b|`|\$\(|&&|;|\|\|")
# who asks, for what, and the answer that is there already
_ASKERS = (
    (r"(?:apt|apt-get)(?: -\S+)*", "install|upgrade|dist-upgrade|remove|purge|autoremove", r"-\w*y\w*|--yes"),
    ("yum|dnf|zypper", "install|update|remove", r"-\w*y\w*|--assumeyes"),
    ("conda|mamba", "install|create|update|remove", "-y|--yes"),
)
_ASKS = tuple(
    re.compile(rf"^((?:\w+=\S+ )*(?:sudo )?(?:{program})) ({action})\b(?!.* (?:{answer})(?: |$))")
    for program, action, answer in _ASKERS
)


@frozen
class TypedCommand:
    """One command of a shell."""

    status: int
    directory: str  # after it
    text: str


def read_typed_commands(data: bytes) -> list[TypedCommand]:
    """The records that `kedge shell --record` leaves; damaged ones are passed over."""
    commands = []
    for record in data.split(b"\0"):
        parts = record.decode("utf-8", "replace").split("\t", 2)
        if len(parts) == 3 and parts[0].isdecimal() and parts[2].strip():
            commands.append(TypedCommand(int(parts[0]), parts[1], parts[2].strip()))
    return commands


def select_commands(commands: Sequence[TypedCommand]) -> list[str]:
    """The commands that belong into a recipe, in their order."""
    return [_answer(command.text) for command in commands if command.status == 0 and not _only_looks(command.text)]


def _only_looks(text: str) -> bool:
    if _WRITES.search(text):
        return False
    try:
        words = shlex.split(text)
    except ValueError:  # quotes that do not match: a heredoc, or something else that is not simple
        return False
    if not words or words[0] in _LOOKS or text.startswith("#"):
        return True
    return any(" ".join(words[1:]).startswith(query) for query in _QUERIES.get(words[0], ()))


def _answer(text: str) -> str:
    for pattern in _ASKS:
        match = pattern.match(text)
        if match is not None and not re.search(r" (?:-\w*y\w*|--yes)(?: |$)", match[0]):
            return f"{match[0]} -y{text[match.end() :]}"
    return text


def render_typed_definition(header: Sequence[tuple[str, str]], commands: Sequence[str]) -> str:
    """A definition file: one %post, in which a `cd` holds for what follows."""
    lines = [f"{key}: {value}" for key, value in header]
    # lines of a heredoc stay as they are: one that ends it must not be indented
    body = [command if "\n" in command else f"    {command}" for command in commands]
    return "\n".join([*lines, "", "%post", *(body or ["    true"]), ""])


def render_typed_dockerfile(base: str, commands: Sequence[str]) -> str:
    """A Dockerfile: one RUN, in which a `cd` holds for what follows; a heredoc, as commands may have several lines."""
    name = "END" if not any(re.search(r"^END$", command, re.MULTILINE) for command in commands) else "END_OF_COMMANDS"
    body = "".join(f"{command}\n" for command in commands)
    return f"FROM {base}\nRUN <<'{name}'\nset -e\n{body}{name}\n" if commands else f"FROM {base}\n"
