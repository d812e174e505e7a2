# SPDX-License-Identifier: BSD-3-Clause
"""What is written down: the subjects (subjects.toml), their figures, and the mutants that survived (survivors.toml)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant

_SUBJECTS, _SURVIVORS = "tests/mutation/subjects.toml", "tests/mutation/survivors.toml"
_HEADER = """\
# SPDX-License-Identifier: BSD-3-Clause
# How many mutants the tests of each subject kill, and which ones survive. `scripts/mutate --record` writes the figures
# and the survivors, and keeps the reasons, which are ours: why the mutant is the same program, or is not worth a test.
"""


class Subject(NamedTuple):
    """A part of the source, and the tests that guard it."""

    name: str
    sources: tuple[str, ...]  # FILE, or FILE::NAME for a function or class of it
    tests: tuple[str, ...]  # words for pytest, the quickest tests first


class Figures(NamedTuple):
    """What came out for a subject."""

    date: date
    seed: int
    sample: str  # which mutants these are: `identify_sample`
    mutants: int
    killed: int


class Survivor(NamedTuple):
    """A mutant that no test noticed, and why that may be; empty: nobody has looked yet."""

    subject: str
    file: str
    function: str
    change: str
    reason: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """As `Mutant.identity`."""
        return self.file, self.function, self.change


class Record(NamedTuple):
    """The whole of survivors.toml."""

    figures: dict[str, Figures]
    survivors: list[Survivor]


def read_subjects(tree: Path) -> dict[str, Subject]:
    """By name, in the file's order."""
    tables = tomllib.loads((tree / _SUBJECTS).read_text(encoding="utf-8"))
    return {name: Subject(name, tuple(each["sources"]), tuple(each["tests"])) for name, each in tables.items()}


def read_record(tree: Path) -> Record:
    """Empty where there is none yet."""
    path = tree / _SURVIVORS
    tables = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    figures = {name: Figures(**each) for name, each in tables.get("figures", {}).items()}
    return Record(figures, [Survivor(**each) for each in tables.get("survivor", [])])


def replace_subject(record: Record, subject: str, figures: Figures, survivors: Iterable[Mutant]) -> Record:
    """The record with these results of a subject; a survivor that was there keeps its reason."""
    reasons = {each.identity: each.reason for each in record.survivors if each.subject == subject}
    new = [Survivor(subject, *each.identity, reasons.get(each.identity, "")) for each in survivors]
    others = [each for each in record.survivors if each.subject != subject]
    return Record({**record.figures, subject: figures}, sorted([*others, *new]))


def write_record(record: Record, tree: Path) -> None:
    """Write the file again."""
    parts = [_HEADER]
    parts += [_write_table(f"[figures.{name}]", each._asdict()) for name, each in sorted(record.figures.items())]
    parts += [_write_table("[[survivor]]", each._asdict()) for each in record.survivors]
    (tree / _SURVIVORS).write_text("\n".join(parts), encoding="utf-8")


def _write_table(heading: str, fields: Mapping[str, object]) -> str:
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value}"
        for name, value in fields.items()
    ]
    return "\n".join([heading, *lines, ""])
