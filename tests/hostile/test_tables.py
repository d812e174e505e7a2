# SPDX-License-Identifier: BSD-3-Clause
"""Tables that are damaged or made to do harm: each gives one error that names the place, and none a traceback."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from kedge.compat.tables import load as tables_module
from kedge.compat.tables.columns import CUDA, GPUS, RELEASES, TABLE_KINDS, TableKind
from kedge.compat.tables.load import LARGEST, SHIPPED, check_file, load_tables, parse_table, read_learned
from kedge.errors import TableProblem
from tests.builders.rows import each_row
from tests.wording import assert_says

# a table may leave columns out: rows are shorter to read without these
HEADER = ",".join(name for name in RELEASES.columns if name not in ("horovod", "dali", "apex", "jupyterlab"))
GOOD = "r.io/x,1,,,,,,12.4,,,,,,,,,,,,somebody"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def find_problems(data: bytes) -> tuple[TableProblem, ...]:
    """What is wrong with a file, whether or not rows of it can be read."""
    try:
        return parse_table(data, "rows.csv").problems
    except TableProblem as problem:
        return (problem,)


@each_row(
    ("row", "column", "said"),
    [
        ("r.io/x,1", "", "there are 2 cells, and 20 columns"),
        (GOOD + ",more", "", "there are 21 cells, and 20 columns"),
        ("r.io/x,1,,,,,,twelve,,,,,,,,,,,,s", "cuda_toolkit", "'twelve' is no version"),
        ("r.io/x,1,,,,,,12.4 \x1b[31m,,,,,,,,,,,,s", "cuda_toolkit", "control characters"),
        ("r.io/x,1,,,,,,,,,535-x,,,,,,,,,s", "min_driver_stated", "'535-x' is no version of a driver"),
        ("r.io/x,1,,,,,,,,,,470;five,,,,,,,,s", "datacenter_compat_drivers_stated", "is no list of driver branches"),
        ("r.io/x,1,,,,,,,,,,,,9,,,,,,s", "compute_capabilities", "'9' is no list of GPU architectures"),
        ("r.io/x,1,,,,,,,,,,,,sm_90,,,,,,s", "compute_capabilities", "'sm_90' is no list of GPU architectures"),
        ("r.io/x,1,last week,,,,,,,,,,,,,,,,,s", "release_date", "'last week' is no date"),
        ("r.io/x,1,,,,,,12.4,,,,,,,,,,,,", "source", "there is no source"),
        ("x,1,,,,,,12.4,,,,,,,,,,,,s", "image", "'x' is no image with its registry"),
        ("../../etc/passwd,1,,,,,,12.4,,,,,,,,,,,,s", "image", "is no image"),
        ("r.io/x,a b,,,,,,12.4,,,,,,,,,,,,s", "tag", "'a b' is no tag"),
        ('r.io/x,"1-{a,b",,,,,,12.4,,,,,,,,,,,,s', "tag", "is no tag"),
        (f"r.io/x,{'t' * 129},,,,,,12.4,,,,,,,,,,,,s", "tag", "is no tag"),
        (f"r.io/x,1,,,,,,12.4,,,,,,,,,,,{'n' * 9000},s", "notes", "the cell has 9000 characters"),
        ('r.io/x,1,,,,,,12.4,,,,,,,,,,,"a\nb",s', "notes", "line breaks"),
        (f"r.io/x,1,,,,,,{'9' * 5000},,,,,,,,,,,,s", "cuda_toolkit", "is no version"),
    ],
)
def test_row_that_makes_no_sense_is_named(tmp_path: Path, row: str, column: str, said: str) -> None:
    table = check_file(write(tmp_path / "rows.csv", HEADER, GOOD.replace("x,1", "x,2"), row))
    assert len(table.rows) == 1
    (problem,) = table.problems
    assert said in problem.message
    assert f"{tmp_path / 'rows.csv'} line 3" in problem.message
    assert problem.context["line"] == "3"
    assert problem.context.get("column", "") == column
    assert problem.hint


def test_duplicates_name_both_lines(tmp_path: Path) -> None:
    table = check_file(write(tmp_path / "rows.csv", HEADER, GOOD, GOOD))
    assert_says(table.problems[0].message, "compat/r-io-x-already-line", 2)
    assert table.problems[0].context["line"] == "3"


@each_row(
    ("kind", "row", "column"),
    [
        (GPUS, "G,datacenter,A,ninety,,G,,,current,,yes,,,s", "compute_capability"),
        (GPUS, "G,toaster,A,9.0,,G,,,current,,yes,,,s", "class"),
        (GPUS, "G,datacenter,A,9.0,,G,,,soon,,yes,,,s", "last_driver_branch"),
        (GPUS, "G,datacenter,A,9.0,,G,,,current,,perhaps,,,s", "forward_compat_eligible"),
        (GPUS, ",datacenter,A,9.0,,G,,,current,,yes,,,s", "gpu_model"),
        (CUDA, ",x,,,,,,,,,,,,s", "cuda_toolkit"),
        (CUDA, "12.4,x,new,,,,,,,,,,,s", "min_driver_linux_x86_64"),
        (CUDA, "12.4,x,550,,,,R525,,,,,,,s", "minor_compat_min_driver"),
    ],
)
def test_rows_of_the_other_tables_are_judged_too(kind: TableKind, row: str, column: str) -> None:
    text = f"{','.join(kind.columns)}\n{row}\n"
    (problem,) = parse_table(text.encode(), "rows.csv").problems
    assert problem.context == {"file": "rows.csv", "line": "2", "column": column}


@each_row(
    ("data", "line", "said"),
    [
        (b"", "1", "the file is empty"),
        (b"\n\n", "1", "the file is empty"),
        (b"a,b,c\n1,2,3\n", "1", "does not name the columns of a table"),
        (f"{HEADER},extra\n".encode(), "1", "has no such column"),
        (f"{HEADER},tag\n".encode(), "1", "the column is there twice"),
        (b"image,tag\nr.io/x,1\n", "1", "the column is missing"),
        (b"image,tag,cuda_tolkit,source\n", "1", "has no such column"),
        (f"{HEADER}\n{GOOD}\nr.io/x\0".encode(), "3", "zero byte"),
        (f"{HEADER}\n".encode() + b"r.io/\xff\xfe,1\n", "2", "not UTF-8"),
        (b"\x7fELF" + bytes(100), "1", "zero byte"),
        (b"x" * (LARGEST + 1), "1", "too large"),
        (f'{HEADER}\n{GOOD}\n"never closed\n'.encode(), "3", "this is no CSV"),
        (f"{HEADER}\n{'x' * 200_000}\n".encode(), "2", "this is no CSV"),
    ],
    ids=str,
)
def test_file_that_is_no_table_is_named(data: bytes, line: str, said: str) -> None:
    problems = find_problems(data)
    assert said in problems[0].message
    assert problems[0].context["line"] == line
    assert problems[0].hint


def test_unknown_column_proposes_the_nearest() -> None:
    with pytest.raises(TableProblem) as caught:
        parse_table(b"image,tag,cuda_tolkit,source\n", "rows.csv")
    assert caught.value.hint == "did you mean 'cuda_toolkit'?"


def test_short_contribution_needs_only_what_it_tells() -> None:
    table = parse_table("\ufeffimage,tag,cuda_toolkit,source\r\nr.io/x,1,12.4,me\r\n".encode(), "rows.csv")
    assert not table.problems
    assert [(row.image, row.cuda, row.source) for _, row in table.rows] == [("r.io/x", "12.4", "me")]


def test_problems_are_bounded() -> None:
    started = time.monotonic()
    table = parse_table(f"{HEADER}\n{'x,' * 30}\n".encode() + b"bad\n" * 200_000, "rows.csv")
    assert len(table.problems) <= 101
    assert time.monotonic() - started < 60


# Learned rows never break a command


@each_row(
    "data",
    [b"", b"\0", b"\xff\xff", b"x" * 100_000, b"image,tag\n", HEADER.encode() + b"\nbad\n", b'"', b"\n" * 1000],
    ids=lambda data: repr(data[:12]),
)
def test_damaged_learned_file_is_a_problem_to_warn_about(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "learned.csv"
    path.write_bytes(data)
    tables = load_tables(path)
    assert tables.releases == load_tables().releases
    assert tables.problems
    assert str(path) in tables.problems[0].message


def test_damaged_line_does_not_take_the_others_along(tmp_path: Path) -> None:
    path = write(tmp_path / "learned.csv", HEADER, "bad", GOOD, "r.io/x,2,,,,,,twelve,,,,,,,,,,,,s")
    tables = load_tables(path)
    assert tables.find_release("r.io/x", "1") is not None
    assert len(tables.problems) == 2


def test_learned_path_that_is_no_file(tmp_path: Path) -> None:
    assert load_tables(tmp_path).problems
    assert load_tables(tmp_path / "no" / "such").problems == ()
    (tmp_path / "loop").symlink_to("loop")
    assert load_tables(tmp_path / "loop").problems == ()
    locked = write(tmp_path / "locked.csv", HEADER)
    locked.chmod(0)
    if os.geteuid() != 0:
        assert "Permission denied" in read_learned(locked)[1][0].message


def test_any_bytes_end_in_rows_or_a_named_problem(tmp_path: Path) -> None:
    rng = random.Random(5)
    data = (SHIPPED / RELEASES.file).read_bytes()[:6000]
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            position = rng.randrange(len(damaged))
            damaged[position : position + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        problems = find_problems(bytes(damaged))
        assert all(problem.hint and problem.context["line"].isdigit() for problem in problems)


# Shipped tables that are damaged are an error


@each_row("kind", TABLE_KINDS, ids=lambda kind: kind.name)
def test_damaged_shipped_table_is_an_error(tmp_path: Path, kind: TableKind, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / kind.name
    shutil.copytree(SHIPPED, folder)
    monkeypatch.setattr(tables_module, "SHIPPED", folder)
    lines = (folder / kind.file).read_text().splitlines()
    lines[1] = lines[1].rpartition(",")[0]
    write(folder / kind.file, *lines)
    for expected in ("line 2", "No such file"):
        tables_module._load.cache_clear()
        tables_module._load_shipped.cache_clear()
        with pytest.raises(TableProblem) as caught:
            load_tables()
        assert kind.file in caught.value.message
        assert expected in caught.value.message
        (folder / kind.file).unlink(missing_ok=True)
    tables_module._load.cache_clear()
    tables_module._load_shipped.cache_clear()
