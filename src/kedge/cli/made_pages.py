# SPDX-License-Identifier: BSD-3-Clause
"""Pages that are made from the code when they are asked for: `kedge help errors` and `kedge help kedge-toml`."""

from __future__ import annotations

from kedge import errors
from kedge.cluster import job_fields

_BAR = "\\|"  # inside a cell
_VALUES = {  # what stands behind a key of kedge.toml, by the kind of its value
    "text": "text",
    "line": "text, one line",
    "choices": "a list of words",
    "count": "a number",
    "gpus": 'a number, or text as `"a100:4"`',
    "memory": 'text as `"64G"`',
    "duration": 'text as `"2h"`',
    "moment": "text",
    "words": "text, or a list of words",
    "list": "a list of texts",
    "lines": "a list of lines, or one text",
    "pairs": 'a table: `{ NAME = "value" }`',
    "yes or no": "`true` or `false`",
    "array": 'text as `"0-9%2"`',
    "dependencies": "a text, or a list of them",
}


def make_errors_page() -> str:
    """The page `errors.md`."""
    lines = [
        "# Errors and exit codes",
        "",
        "Every error says what was tried and why it failed, then the context (file, host, field, offset), then a hint:",
        "the next command. `--json` prints the same as one JSON object on standard output, nothing on standard",
        "error. `--debug` adds where in the code it came from.",
        "",
        "| code | reference | meaning |",
        "|---|---|---|",
        "| 0 | | success |",
    ]
    for kind in errors.all_errors():
        meaning = (kind.__doc__ or "").strip().split("\n")[0]
        if kind is errors.KedgeError:
            meaning = "Any other error that is not a bug."
        lines.append(make_row(str(kind.exit_code), f"`{kind.reference}`", meaning))
        if kind.exit_code == 2:
            lines.append("| 3 | `bug` | A bug: a log for the issue report was written, and its path printed. |")
    lines += [
        "| 128+N | | Ended by signal N: 130 after ^C, 143 after SIGTERM; 141 when the reader went away. |",
        "| 255 | | `run`, `exec`, `shell`, `test`: the program was not started; others are the program's. |",
        "",
        "Ranges: 1-9 general, 10-19 registries, 20-29 image content, 30-39 files and the cache, 40-49 limits of this",
        "host, 50-59 settings, 60-69 containers, 70-79 jobs, 80-89 compatibility and diagnosis.",
        "",
    ]
    return "\n".join(lines)


def make_keys_page() -> str:
    """The page `reference/kedge-toml.md`."""
    lines = [
        "# Keys of kedge.toml",
        "",
        "What they are for: [Jobs](../guides/jobs.md). Python's `kedge.submit` and `kedge.Executor` take the same keys",
        "as keywords.",
        "",
        'At the top of the file there may be `site = "NAME"`; all else stands below `[job]` (what the jobs of the file',
        "share, or the only job) and `[jobs.NAME]` (one job each).",
        "",
    ]
    for group, title in job_fields.GROUPS.items():
        lines += [f"## {title[0].upper()}{title[1:]}", "", "| key | value | flags | |", "|---|---|---|---|"]
        for field in (each for each in job_fields.FIELDS if each.group == group):
            value = " ".join(f"`{each}`" for each in field.choices) if field.kind == "choice" else _VALUES[field.kind]
            flags = [*field.flags, *(flag for flag, _ in field.constants)]
            lines.append(make_row(f"`{field.key}`", value, " ".join(f"`{flag}`" for flag in flags), field.help))
        lines.append("")
    return "\n".join(lines)


def make_row(*cells: str) -> str:
    """A row of a table; a bar inside a cell does not end it."""
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |".replace("|  |", "| |")
