# SPDX-License-Identifier: BSD-3-Clause
"""ENTRYPOINT and CMD of an image config as the shell script `runscript`, ENV as 10-docker2singularity.sh.

Entrypoint and arguments, or CMD where there are no arguments, are joined to one line and evaluated, so that variables
in them are expanded (unlike Docker). With --no-eval or --compat Apptainer sets SINGULARITY_NO_EVAL and nothing is.

Every variable of ENV keeps a value the shell already has, except PATH. Values are escaped once, as Apptainer does since
1.5; 1.4 and older escape twice and lose `$` and backticks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
# Apptainer looks for this very line; scripts that have it run in its embedded shell, so the image needs none.
EVAL_LINE = 'eval "set ${SINGULARITY_OCI_RUN}"'

_TEMPLATE = """#!/bin/sh
OCI_ENTRYPOINT={entrypoint}
OCI_CMD={command}

# --no-eval: entrypoint, CMD and arguments exactly as they are
if [ -n "${{SINGULARITY_NO_EVAL:-}}" ]; then
{literal}    exec "$@"
fi

# otherwise all of them are expanded by the shell; arguments take the place of CMD
SINGULARITY_OCI_RUN=""
for word in "$@"; do
    SINGULARITY_OCI_RUN="${{SINGULARITY_OCI_RUN}} \\"${{word}}\\""
done
if [ $# -eq 0 ]; then
    SINGULARITY_OCI_RUN="${{OCI_CMD}}"
fi
SINGULARITY_OCI_RUN="-- ${{OCI_ENTRYPOINT}} ${{SINGULARITY_OCI_RUN}}"
{evaluate}
exec "$@"
"""


def render_environment(entries: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The file's text, and one warning for each entry that a shell cannot take."""
    values: dict[str, str | None] = {}
    warnings: list[str] = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not _NAME.match(name):
            warnings.append(f"the environment variable '{name[:80]}' is left out: the name is not valid in a shell")
        elif "\0" in value:
            warnings.append(f"the environment variable '{name}' is left out: its value has a NUL character")
        else:
            values[name] = value if equals else None  # the last of several wins, as with Docker
    lines = ["#!/bin/sh", *(_export(name, value) for name, value in values.items())]
    return "\n".join(lines) + "\n", tuple(warnings)


def _export(name: str, value: str | None) -> str:
    if value is None:
        return f'export {name}="${{{name}:-}}"'
    if name == "PATH":
        return f'export PATH="{_escape_double(value)}"'
    return f'export {name}="${{{name}:-"{_escape_double(value)}"}}"'


def render_runscript(entrypoint: Sequence[str], command: Sequence[str]) -> str:
    """The runscript; an image with neither ENTRYPOINT nor CMD runs its arguments, or /bin/sh."""
    if not entrypoint and not command:
        command = ["/bin/sh"]
    literal = ""
    if command:
        literal += f"    if [ $# -eq 0 ]; then\n        set -- {quote_words(command)}\n    fi\n"
    if entrypoint:
        literal += f'    set -- {quote_words(entrypoint)} "$@"\n'
    return _TEMPLATE.format(
        entrypoint=_quote_single(_join_evaluated(entrypoint)),
        command=_quote_single(_join_evaluated(command)),
        literal=literal,
        evaluate=EVAL_LINE,
    )


def _join_evaluated(words: Sequence[str]) -> str:
    """Words that survive one evaluation: each in double quotes, joined by spaces."""
    return " ".join(f'"{_escape_double(word)}"' for word in words)


def _escape_double(text: str) -> str:
    """Text for the inside of double quotes: backslash, double quote, backtick and dollar get a backslash."""
    return "".join(f"\\{character}" if character in '\\"`$' else character for character in text)


def _quote_single(text: str) -> str:
    """Text in single quotes; a single quote inside is written as '"'"'."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def quote_words(words: Sequence[str]) -> str:
    """Words in single quotes, joined by spaces."""
    return " ".join(_quote_single(word) for word in words)
