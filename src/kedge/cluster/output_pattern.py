# SPDX-License-Identifier: BSD-3-Clause
"""Names of output files of jobs: fills {name}, {id} and {index} into a pattern, for scripts and for readers."""

from __future__ import annotations

from kedge.base.patterns import late_pattern

PLACEHOLDERS = ("{name}", "{id}", "{index}")
_PARTS = late_pattern(r"(\{(?:name|id|index)\})")
# all characters but those without meaning for file systems, shells and schedulers (%j, $JOB_ID, HOST:PATH)
_UNSAFE = late_pattern(r"[^\w.+=,@-]")
_LIMIT = 150  # bytes: leaves room for an id and a suffix


def make_file_name(name: str) -> str:
    """A job name as a part of file names; unchanged if possible."""
    safe = name if name.isalnum() else _UNSAFE.sub("_", name)
    text = safe.encode(errors="replace")[:_LIMIT].decode(errors="ignore")
    return text if text.strip(".") else "_" * max(len(text), 1)


def shorten_id(id: str) -> str:
    """A job id as a part of file names: of PBS's `12.server` and `12[].server` only the number."""
    return id[: len(id) - len(id.lstrip("0123456789"))] or id


def split_pattern(pattern: str) -> list[str]:
    """The pattern in pieces: placeholders, and the text between them."""
    return [part for part in _PARTS.split(pattern) if part]


def fill_pattern(pattern: str, *, name: str, id: str, index: int | None) -> str:
    """The output file of a job, or of one task of an array."""
    values = {"{name}": make_file_name(name), "{id}": shorten_id(id), "{index}": "" if index is None else str(index)}
    return "".join(values.get(part, part) for part in split_pattern(pattern))
