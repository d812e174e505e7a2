# SPDX-License-Identifier: BSD-3-Clause
"""The compute capability of a GPU by the name that its driver reports. A start imports this, so it imports nothing."""

from __future__ import annotations

from _csv import Error, reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Known = tuple[str, str, bool | None, int | None]

_TABLE = f"{__file__.rpartition('/')[0]}/../../data/gpu_arch.csv"
_NAME, _KIND, _CAPABILITY, _SMI_NAMES, _BRANCH, _FORWARD = 0, 1, 3, 5, 8, 10
_WORDS_OF_MAKERS = ("nvidia", "tesla")
_FORWARD_WORDS = {"yes": True, "no": False}


def find_capability(model_name: str) -> Known | None:
    """Capability, kind, whether forward compatibility serves it (None: some boards), and its last driver branch.

    The table's own names first; else the model within the name (`A100` of `NVIDIA A100-SXM4-96GB`), where all boards
    of that model have the same capability. None for a GPU that the table does not have, or a table that is not there.
    """
    wanted = split_name(model_name)
    if not wanted:
        return None
    alike: list[Known] = []
    try:
        for row in _read_rows():
            names = [split_name(name) for name in (row[_NAME], *row[_SMI_NAMES].split(";"))]
            if wanted in names:
                return _make(row)
            if has_model_first(wanted) and any(name[:1] == wanted[:1] for name in names):
                alike.append(_make(row))
    except (OSError, ValueError, IndexError, Error):  # a broken table is for `kedge data list` to tell, not for a start
        return None
    return alike[0] if alike and all(each == alike[0] for each in alike) else None


def split_name(text: str) -> list[str]:
    """`a100 sxm4 40gb` of `NVIDIA A100-SXM4-40GB MIG 1g.5gb`: lower case, no maker's name, no part of a MIG.

    Laptops have the board's number too: GeForce boards of one generation have one compute capability.
    """
    name = text.lower().partition(" mig ")[0].strip().removesuffix(" laptop gpu")
    for mark in "-_/()":
        name = name.replace(mark, " ")
    return [word for word in name.split() if word not in _WORDS_OF_MAKERS]


def has_model_first(words: list[str]) -> bool:
    """Whether the first word is the model: `a100`, but not the `geforce` or `rtx` of a family's name."""
    return words[0][:1].isalpha() and any(mark.isdigit() for mark in words[0])


def _read_rows() -> Iterator[list[str]]:
    with open(_TABLE, encoding="utf-8", newline="") as file:  # noqa: PTH123 - pathlib costs more than the table
        rows = reader(file)
        next(rows, None)
        yield from rows


def _make(row: list[str]) -> Known:
    branch = row[_BRANCH].removeprefix("R")
    forward = _FORWARD_WORDS.get(row[_FORWARD].partition(" ")[0])
    return row[_CAPABILITY], row[_KIND], forward, int(branch) if branch.isdigit() else None
