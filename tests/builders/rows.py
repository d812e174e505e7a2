# SPDX-License-Identifier: BSD-3-Clause
"""Many cheap rows in one test, which goes through all of them and names each that fails.

`@each_row` is written as `@pytest.mark.parametrize` is. That makes a test of each row, for some milliseconds and three
messages between processes, which is more than such a row itself costs. Fixtures are shared by the rows: a test whose
rows need a directory or an environment of their own stays parametrized. `@with_rows` needs no names: those of the test
are enough where all its parameters are the row's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: Sequence[str] | Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Call the test with each row; `names` and `ids` are those of `pytest.mark.parametrize`."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = list(rows)
    assert listed, "no rows: such a test proves nothing"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        assert set(words) <= set(signature.parameters), f"{words} are no parameters of {test.__name__}"

        @functools.wraps(test)
        def of_all_rows(**fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(listed):
                values = (row,) if len(words) == 1 else tuple(row)
                try:
                    test(**fixtures, **dict(zip(words, values, strict=True)))
                except (Exception, pytest.fail.Exception) as failure:
                    failures.append((_name_row(words, values, number, ids), failure))
            if failures:
                raise _join(failures, len(listed))

        kept = [each for name, each in signature.parameters.items() if name not in words]
        of_all_rows.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return of_all_rows

    return decorate


def with_rows(*rows: Any, ids: Sequence[str] | Callable[[Any], object] | None = None) -> Callable[[Test], Test]:
    """As `each_row`, with the names that the test gives all its parameters, in their order."""

    def decorate(test: Test) -> Test:
        return each_row(list(inspect.signature(test).parameters), rows, ids=ids)(test)

    return decorate


def _name_row(words: list[str], values: tuple[Any, ...], number: int, ids: Any) -> str:
    """`row 3: text='x'`, or the name that `ids` gives it."""
    if callable(ids):
        return f"row {number}: {', '.join(str(ids(value)) for value in values)}"
    if ids is not None:
        return f"row {number}: {ids[number]}"
    return f"row {number}: {', '.join(f'{word}={value!r:.200}' for word, value in zip(words, values, strict=True))}"


def _join(failures: list[tuple[str, BaseException]], count: int) -> BaseExceptionGroup[BaseException]:
    """All that failed, with the traceback of each."""
    lines = [f"{name}\n    {str(failure) or type(failure).__name__}" for name, failure in failures]
    return BaseExceptionGroup(
        f"{len(failures)} of {count} rows failed:\n" + "\n".join(lines), [failure for _, failure in failures]
    )
