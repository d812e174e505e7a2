# SPDX-License-Identifier: BSD-3-Clause
"""Names of a job's output files: {name}, {id} and {index} in a pattern, the same for scripts and for who reads them."""

from __future__ import annotations

import re

PLACEHOLDERS = ("{name}", "{id}", "{index}")
_PARTS = re.compile(r"(\{(?:name|id|index)\})")
# what no file system, no shell and no scheduler (%j, $JOB_ID, HOST:PATH) takes for something else
_UNSAFE = re.compile(r"[^\w.+=,@-]")
_NUMBER = re.compile("[0-9]+")
_LIMIT = 150  # bytes: an id and a suffix have to fit beside it


def make_file_name(name: str) -> str:
    """A job's name as a part of file names; the name itself where it can be one."""
    text = _UNSAFE.sub("_", name).encode(errors="replace")[:_LIMIT].decode(errors="ignore")
    return text if text.strip(".") else "_" * max(len(text), 1)


def shorten_id(id: str) -> str:
    """A job's id as a part of file names: PBS's `12.server` and `12[].server` by their number."""
    return (_NUMBER.match(id) or [id])[0]


def split_pattern(pattern: str) -> list[str]:
    """The pattern in pieces, each a placeholder or text between them."""
    return [part for part in _PARTS.split(pattern) if part]


def fill_pattern(pattern: str, *, name: str, id: str, index: int | None) -> str:
    """The file that a job, or one task of an array, writes."""
    values = {"{name}": make_file_name(name), "{id}": shorten_id(id), "{index}": "" if index is None else str(index)}
    return "".join(values.get(part, part) for part in split_pattern(pattern))
